"""Model architectures, one file per family. `config.py` reads their shapes without torch."""

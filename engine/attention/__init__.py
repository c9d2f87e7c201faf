"""Paged attention: what backends agree on (`base`, `cache`), a plain torch oracle and a numba backend for CPUs.

The one for GPUs is in engine/kernels; models/ops.py chooses.
"""

"""`python -m benchmarks`: run every benchmark, print one table, write JSON; exit 1 if a promised ratio is missed."""

import sys

from benchmarks.throughput import main

if __name__ == "__main__":
    sys.exit(main())

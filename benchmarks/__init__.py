"""Benchmarks with ratios against peers that run on the same machine in the same minutes. `make bench` runs them."""

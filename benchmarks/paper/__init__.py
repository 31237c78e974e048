"""Comparison of strategies by what the literature compares them by: ``python -m benchmarks.paper``."""

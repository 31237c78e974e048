"""Exchange of strategies on an emulated network: ``python -m benchmarks.network``."""

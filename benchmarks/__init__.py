"""Benchmarks: Cerebro-DB and its peers, side by side on one machine. They measure, they assert nothing."""

"""Statements that servers have in common: training, packing, predicting, direct workers. What differs is overridden."""

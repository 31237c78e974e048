"""Grids, lists and single configurations of parameters: their texts read, checked, as values."""

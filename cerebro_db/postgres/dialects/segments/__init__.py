"""Statements where rows are spread over segments: each trains, packs and predicts beside the rows that it has."""

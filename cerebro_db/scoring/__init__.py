"""Predictions and evaluations by trained models, and what follows from them."""

"""Losses, metrics, optimizers, callbacks and expressions that may be named."""

"""Loss, metrics, curves and predictions over buffers."""

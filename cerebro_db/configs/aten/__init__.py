"""PyTorch's exported programs as data: the archive, its graph, the operations that it may have."""

"""Keras models from checked architectures: built, named, bounded, read from files and exported."""

"""Architectures, configurations and trained models: loaded, checked, registered and exported."""

"""Search: which configurations are tried, how far each is trained, and when it ends."""

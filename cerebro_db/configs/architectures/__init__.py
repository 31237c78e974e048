"""Architectures as users hand them in: JSON checked against an allow-list, and what it takes to train them."""

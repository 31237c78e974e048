"""Kinds of columns: each is one class, which says all that depends on the kind."""

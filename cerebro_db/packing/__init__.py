"""Packed tables: surveyed, laid out and written; encodings and splits of their rows."""

"""Runs: from a request to output tables, and from where one stopped to its end."""

"""Runs as they are looked at: read from the catalog, compared, drawn, and handed to other tools."""

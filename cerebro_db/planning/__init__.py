"""Visiting orders, the dispatch rule and cost estimates: these decide, they never act."""

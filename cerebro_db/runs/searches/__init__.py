"""Searches: runs whose configurations are added, stopped and promoted by decisions."""

"""Kills what trains, at random moments, and looks whether the results are those of a calm run."""

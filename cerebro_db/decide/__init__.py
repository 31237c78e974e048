"""Decisions on the next step of a run, as functions of its state: these decide, they never act."""

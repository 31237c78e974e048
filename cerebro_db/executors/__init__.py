"""Executors: who does the tasks of a run. Today these are sessions of the server."""

"""Dialects: what differs between the servers, a folder each.

This module imports nothing: processes of segments need little of what is here, and begin often.
"""

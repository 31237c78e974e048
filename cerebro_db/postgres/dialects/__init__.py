"""All that differs between servers.

This module imports nothing: processes of segments need little of what is here, and begin often.
"""

"""Processes beside the server: keepers start them, drivers and trainers work for one role each."""

"""Trainers that compute together: their ways to each other, and the rounds that they make."""

"""A run as values: what it trains, what has happened, how it stands. No input or output."""

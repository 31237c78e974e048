"""Direct workers: the tables in which a driver finds them, and the session that each of them has."""

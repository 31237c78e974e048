"""All that speaks to the server, in rooms that import downwards only.

- ``direct``: direct workers, from the driver's side and from their own.
- ``calls``: what a call of a user has: its caller's settings, its host, slots of workers, GPUs of hosts.
- ``catalog``: rows of runs, hops, trials, jobs and models.
- ``dialects``: what differs between servers: a folder each, with capabilities and the SQL of training, packing and predicting.
- ``tables``: names of users' tables, kinds of tables, outputs, packed tables.
- ``sessions``: connections, statements, transactions, locks.
- ``names``: quoted identifiers.
"""

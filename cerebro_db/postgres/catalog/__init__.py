"""The catalog of Cerebro-DB: rows of runs, hops, trials, jobs and models, read and written through its views."""

"""The catalog of Cerebro-DB: rows of runs, hops, trials, jobs and models, read through its views and written by its functions."""

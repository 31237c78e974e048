"""Functions that drivers and trainers do for SQL functions.

Their first arguments are ``plpy``, lent by the server process, and what the process keeps from call to call.
"""

import os

# NumPy's BLAS starts a thread for each core when it is imported, and keepers must have none: they fork.
# Nothing here multiplies matrices; training sets its own number.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

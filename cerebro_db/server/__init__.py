"""What the SQL functions call, inside a backend: plpy and GD are handed in as arguments."""

import os

# NumPy's BLAS starts a thread for each core when it is imported, where the server's signals would
# reach them, and they spin. Nothing here multiplies matrices; training sets its own number.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

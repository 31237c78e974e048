"""Imports TensorFlow in this backend, and yields (name, version) of what Cerebro-DB runs on."""

import importlib
import platform
import signal

# Threads that TensorFlow starts must not receive the signals of the server.
before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
try:
    modules = [importlib.import_module(name) for name in ("numpy", "tensorflow", "keras")]
finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

yield "Python", platform.python_version()
for module in modules:
    yield module.__name__, module.__version__

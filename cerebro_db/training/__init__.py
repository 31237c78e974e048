"""Arrays in, arrays out: programs, states, buffers, metrics. The only layer that knows TensorFlow."""

"""Who can be asked for the GPUs of a host."""

NVIDIA, TENSORFLOW = "nvidia", "tensorflow"
SOURCES = (TENSORFLOW, NVIDIA)

"""Our kernels for CPUs, and how llama.cpp is patched and compiled: README.md. Needs only Python's library."""

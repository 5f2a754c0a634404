"""Measures jan-serve, alternating with a peer in one run. `python -m benchmarks --help`."""

"""Measurements of jan-serve beside a peer, in one run. `python -m benchmarks --help`."""

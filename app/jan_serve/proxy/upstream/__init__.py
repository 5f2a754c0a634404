"""HTTP towards nodes: which addresses are allowed, connections, and their reuse."""

"""Values that every package shares: requests, constraints, events, usage. No behaviour, no I/O."""

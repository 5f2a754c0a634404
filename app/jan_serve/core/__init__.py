"""Values that all packages share: requests, messages, constraints, events. No I/O."""

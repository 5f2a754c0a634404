"""Which of many servers answers a request: values and decisions, without I/O, clock or randomness of its own."""

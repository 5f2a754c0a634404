"""The path of a request: lease a model, render the prompt, compile the constraint, submit, parse, yield events."""

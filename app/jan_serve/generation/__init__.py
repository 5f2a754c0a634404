"""The one path of a request: lease a model, compile the constraint, render the prompt, submit, parse, yield events."""

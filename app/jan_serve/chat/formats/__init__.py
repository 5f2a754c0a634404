"""The answer formats of model families, one file a family: how it is told, parsed and written. No state."""

"""Data and tools for models: the built-in model, the recipe that makes it, the catalogue. Not part of the wheel's code."""

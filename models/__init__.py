"""The built-in model, the recipe that makes it, and the catalogue of models to pull. Data and tools, no library."""

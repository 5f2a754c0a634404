"""The answer formats of model families, one file for each notation of calls. `detect` lists them."""

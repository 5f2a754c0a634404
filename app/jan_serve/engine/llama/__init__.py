"""Typed wrappers; no other code calls the llama.cpp bindings. Not thread-safe unless documented."""

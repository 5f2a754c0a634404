"""The only code that calls the llama.cpp bindings, as a few typed objects. Not thread-safe except where said."""

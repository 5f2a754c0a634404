"""Typed wrappers; no other code calls the llama.cpp bindings. Not thread-safe unless documented."""

import sys

from jan_serve.resources import bundled_packages

# The bindings that were built with this package come before others of the environment.
if (_bundled := bundled_packages()) is not None:
    sys.path.insert(0, str(_bundled))

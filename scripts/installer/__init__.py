"""Makes .venv: compiles llama.cpp and installs the pinned packages. Only the standard library; Python 3.11 or newer."""

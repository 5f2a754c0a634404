"""llama.cpp's own `--fit` beside our plans: `python -m tests.conformance.fit`."""

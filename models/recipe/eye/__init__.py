"""How the built-in model learns to see: drawn pictures, questions about them, and a projector for llama.cpp."""

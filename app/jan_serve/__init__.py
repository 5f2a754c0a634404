"""jan-serve: a local LLM server for GGUF models."""

__version__ = "0.1.0"

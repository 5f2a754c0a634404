"""Ollama's API, at /api: for programs that look for Ollama before anything else. docs/ollama.md."""

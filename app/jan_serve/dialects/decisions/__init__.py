"""Typed decisions: /v1/decide, which is ours, and /v1/systemone. docs/decisions.md."""

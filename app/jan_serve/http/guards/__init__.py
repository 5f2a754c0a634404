"""Refuse requests before any route sees them: pure ASGI middleware, one guard a file."""

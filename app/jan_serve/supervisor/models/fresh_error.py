"""One failure, many requests: each gets an exception object of its own.

An object that is raised in several tasks would collect their tracebacks, and keep their frames alive.
"""

from __future__ import annotations

from jan_serve.errors import JanServeError, error_from_payload


def fresh(error: JanServeError) -> JanServeError:
    """An equal error that has not been raised yet."""
    return error_from_payload(error.code, error.payload())

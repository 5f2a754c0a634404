"""The number of connections that a server keeps open."""

from __future__ import annotations

import sys
from typing import Final

MAX_CONNECTIONS: Final = 1000


def connection_limit() -> int:
    """At most half of the file descriptors that the process may open: models, helpers and files need the others."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # not on Windows

    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        MAX_CONNECTIONS if descriptors == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, descriptors // 2)
    )

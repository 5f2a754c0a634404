"""HEALTHCHECK of Docker: exits with 0 if the server in this container is alive."""

from __future__ import annotations

import json
import os
import sys
import urllib.request

LIMIT_S = 4.0


def main() -> int:
    url = f"http://127.0.0.1:{os.environ.get('JAN_SERVE_PORT', '1337')}/health"
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as response:
            return 0 if json.load(response)["status"] == "ok" else 1
    except (OSError, ValueError, KeyError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

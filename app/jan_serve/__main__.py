"""Entry point of `python -m jan_serve` and of the `jan-serve` script.

Workers are dispatched before the CLI is imported: every model load and template render pays for this start-up.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command in `sys.argv` and return the exit status."""
    if sys.argv[1:2] == ["worker"]:
        from jan_serve.engine.worker import main as worker_main

        return worker_main()
    if sys.argv[1:2] == ["render"]:
        from jan_serve.rendering.worker import main as render_main

        return render_main()
    from jan_serve.cli.main import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())

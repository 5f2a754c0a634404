"""Entry point of `python -m jan_serve` and of the `jan-serve` script.

Workers and helpers are dispatched before the CLI is imported: every model load, template and constraint pays for this
start-up.
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
    if sys.argv[1:2] == ["compile"]:
        from jan_serve.compiling.worker import main as compile_main

        return compile_main()
    from jan_serve.cli.interrupts import INTERRUPTED, end_by_interrupts, interrupts_end_at_once

    try:
        with interrupts_end_at_once():
            from jan_serve.cli.main import main as cli_main
            from jan_serve.cli.standard_streams import prepare_streams

            prepare_streams()
        return cli_main()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        end_by_interrupts()


if __name__ == "__main__":
    sys.exit(main())

"""Entry point of `python -m jan_serve` and of the `jan-serve` script.
Workers and helpers start without importing the CLI: their start-up time delays model swaps, templates, constraints and
media."""

from __future__ import annotations

import sys

from jan_serve.quick_imports import quick_imports


def main() -> int:
    """Run the command of `sys.argv`. Returns the exit status."""
    _leave_no_memory_dump()
    if sys.argv[1:2] == ["worker"]:
        with quick_imports():
            from jan_serve.engine.worker import main as worker_main

        return worker_main()
    if sys.argv[1:2] and (command := sys.argv[1]) in ("render", "compile", "media", "headers"):
        with quick_imports():
            from jan_serve.helpers.child import helper

            serve = helper(command)
        return serve()
    try:
        from jan_serve.cli.interrupts import INTERRUPTED, end_by_interrupts, interrupts_end_at_once
    except KeyboardInterrupt:
        return 130
    try:
        with interrupts_end_at_once():
            if is_server(sys.argv[1:]):
                with quick_imports():
                    from jan_serve.cli.server import head_start
                head_start.begin()
            from jan_serve.cli.main import main as cli_main
            from jan_serve.cli.main import prepare_streams

            prepare_streams()
        return cli_main()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        end_by_interrupts()


def is_server(arguments: list[str]) -> bool:
    """Whether this is a command line of a server, as far as one can tell before it is read."""
    if {"-h", "--help", "--version"}.intersection(arguments):
        return False
    return arguments[:1] in ([], ["serve"], ["own-server"]) or arguments[0].startswith("-")


def _leave_no_memory_dump() -> None:
    """A process that crashes, and its children, would leave prompts and keys in a file."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))


if __name__ == "__main__":
    sys.exit(main())

"""`jan-serve cluster-replica` (hidden): the server of one replica; see `cluster.child`."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import typer

from jan_serve.cli.commands.serve import serve_on
from jan_serve.cli.output import Output
from jan_serve.cli.server.end_of_input import stop_at_end_of_input
from jan_serve.cli.server.listen import listen, url_of
from jan_serve.cli.settings import load_settings
from jan_serve.errors import SettingsError


def cluster_replica() -> None:
    """Serve with the settings in the first line of standard input, until its end. Prints the address."""
    settings = _settings(sys.stdin.buffer.readline())
    with listen(settings.pop("host", "127.0.0.1"), 0) as sock:
        host, port = sock.getsockname()[:2]
        loaded = load_settings({**settings, "host": host, "port": port})
        sys.stdout.write(url_of(sock) + "\n")
        sys.stdout.flush()
        stop_at_end_of_input()
        raise typer.Exit(serve_on(loaded, Output(), sock))


def _settings(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SettingsError(f"standard input: no settings ({error})") from None

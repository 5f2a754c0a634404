"""`jan-serve serve`: takes the port, prints a banner and runs the server until a signal stops it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from jan_serve import __version__
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.interrupts import interrupts_end_at_once
from jan_serve.cli.options import with_setting_flags
from jan_serve.cli.output import output
from jan_serve.cli.server import head_start
from jan_serve.cli.server.hardware import ProbeFailed, free_memory, is_cpu_only, probe_engine
from jan_serve.cli.server.listen import AlreadyServing, listen, listen_also, url_of
from jan_serve.config import LoadedSettings, ModelBook, Settings
from jan_serve.config.settings_loader import find_config
from jan_serve.daemon.running import IdleStop, WrongSocket, inherited_socket, systemd_notifier
from jan_serve.errors import InvalidModel, ModelNotFound, SettingsError
from jan_serve.helpers.kinds import COMPILING, DECODING
from jan_serve.helpers.pool import HelperPool
from jan_serve.logs.log_file import LogFileHandler, LogFileUnavailable, open_log_file
from jan_serve.logs.log_lines import configure_logging
from jan_serve.quick_imports import quick_imports
from jan_serve.store.gguf.gguf_header import check_magic
from jan_serve.store.index import DefaultModel
from jan_serve.store.resolve import ModelResolver
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import ServerParts, build_library, build_manager, build_resolver

if TYPE_CHECKING:
    from jan_serve.daemon.running import ServerObserver
    from jan_serve.membership.member import Membership


def serve(loaded: LoadedSettings) -> int:
    """Serve models over HTTP, as `jan-serve` without a command does. Ctrl-C lets running requests finish.

    A second Ctrl-C, or a second SIGTERM, stops at once.

    If another jan-serve has the port, the command says so. Its exit status is 0, or 2 with flags other than --port,
    which that server does not have.
    """
    with from_manager() as (inherited, observer):
        try:
            return serve_on(loaded, inherited, observer)
        except AlreadyServing as running:
            flags = _flags_in_vain(loaded)
            if flags:
                raise _runs_otherwise(loaded, running, flags) from None
            output.note(f"jan-serve is {running}.")
            return 0


def _flags_in_vain(loaded: LoadedSettings) -> list[str]:
    """The flags of this command that say more than which port."""
    flags = [flag for field, flag in loaded.origins.items() if flag.startswith("--") and field != "port"]
    return flags if loaded.config_file == find_config()[0] else ["--config", *flags]


def _runs_otherwise(loaded: LoadedSettings, running: AlreadyServing, flags: Sequence[str]) -> CommandError:
    settings = loaded.settings
    hints = ["Stop that server first, or choose another port with --port."]
    if "--model" in flags and settings.model is not None and not settings.model.lower().endswith(".gguf"):
        address = f" --url http://127.0.0.1:{settings.port}" if "port" in loaded.origins else ""
        hints.insert(0, f"`jan-serve load {settings.model}{address}` loads the model there.")
    message = f"jan-serve is {running}: {', '.join(flags)} of this command cannot change it"
    return WrongUse(message, " ".join(hints))


@contextmanager
def from_manager(
    launchd_name: str | None = None,
) -> Generator[tuple[socket.socket | None, ServerObserver | None]]:
    """Listening socket and observer from the service manager that started the process; None without one."""
    with ExitStack() as taken:
        try:
            inherited = inherited_socket(launchd_name=launchd_name)
        except WrongSocket as error:
            raise CommandError(str(error), "`jan-serve service install` writes correct units.") from None
        if inherited is not None:
            taken.enter_context(inherited)
        notifier = systemd_notifier()
        if notifier is not None:
            taken.callback(notifier.close)
        yield inherited, notifier


def serve_on(
    loaded: LoadedSettings,
    inherited: socket.socket | None = None,
    observer: ServerObserver | None = None,
    log_stream: TextIO | None = None,
) -> int:
    """Serve on the inherited socket, else on a new one. Raises AlreadyServing.
    log_stream: replaces standard error for log lines."""
    with ExitStack() as opened:
        with interrupts_end_at_once():
            settings = loaded.settings if inherited is None else _as_inherited(loaded.settings, inherited)
            if inherited is not None and settings.idle_exit_s:
                observer = IdleStop(settings.idle_exit_s, observer)
            book = loaded.book()
            resolver = _resolver(loaded, settings, book)
            sources = ModelSources(resolver, settings, book)
            default = resolver.default()
            if settings.model is not None and default.entry is not None:
                _check_file(loaded, default.entry.path)
            if settings.device is not None:
                _check_device(settings.device, settings.rpc)
            sock = inherited if inherited is not None else listen(settings.host, settings.port)
            opened.enter_context(sock)
            more = [opened.enter_context(listen_also(settings.host, port)) for port in settings.also_listen]
            file = opened.enter_context(log_file(settings))
            configure_logging(settings.log_level, as_json=settings.log_json, stream=log_stream, file=file)
            for warning in loaded.warnings:
                output.warning(warning)
            if not settings.is_loopback and not settings.api_keys:
                output.warning(f"other machines can reach {settings.host}, and no API key is set")
            if settings.proxy_url is not None:
                # Most servers have no proxy, and start without this.
                from jan_serve.membership.member import ProxyMember

                observer = ProxyMember(partial(_membership, settings, sock.getsockname()[1]), observer)
            print_banner(settings, default, sock, more)
        return run_server(settings, resolver, sources, sock, observer, more, preloads=default.is_expected)


def _resolver(loaded: LoadedSettings, settings: Settings, book: ModelBook) -> ModelResolver:
    """Raises CommandError for a default model that is not there, SettingsError."""
    try:
        return build_resolver(settings, book)
    except ModelNotFound as error:
        hint = "--models-dir chooses another folder."
        if not error.can_pull:
            hint = f"`jan-serve pull {error.name}` downloads a model of the hub; {hint}"
        message = f"{loaded.origins.get('model', 'model')}: {error.message}"
        raise WrongUse(message, hint) from None


def _check_file(loaded: LoadedSettings, path: Path) -> None:
    """Raises CommandError for one that does not even begin as a model: each request would fail."""
    try:
        check_magic(path)
    except InvalidModel as error:
        origin = loaded.origins.get("model", "model")
        raise WrongUse(f"{origin}: {error.message}") from None


def _membership(settings: Settings, port: int) -> Membership:
    from jan_serve.membership.member import Membership, node_url

    assert settings.proxy_url is not None
    path = "" if settings.role == "hybrid" else "/lmdeploy"
    url = settings.advertise_url + path if settings.advertise_url is not None else None
    own_key = settings.api_keys[0] if settings.api_keys else None
    proxy_key = settings.proxy_key or own_key
    return Membership(
        settings.proxy_url,
        url or node_url(settings.host, port, settings.proxy_url, settings.role),
        settings.role,
        proxy_key.get_secret_value() if proxy_key is not None else None,
        settings.speed,
        own_key.get_secret_value() if own_key is not None else None,
    )


def _as_inherited(settings: Settings, sock: socket.socket) -> Settings:
    """The settings with the actual address of the socket, which the request guards use."""
    host, port = sock.getsockname()[:2]
    actual = settings.model_copy(update={"host": host, "port": port})
    if not actual.is_loopback and not actual.api_keys and not actual.no_auth:
        raise SettingsError(
            f"host: the service manager listens on {host}, which other machines can reach, and no API key is set"
        )
    if port != settings.port or (host != settings.host and not (actual.is_loopback and settings.is_loopback)):
        output.warning(
            f"the service manager listens on {host} port {port}, but the settings say {settings.host} port"
            f" {settings.port}: `jan-serve service install` applies them"
        )
    return actual


def run_server(
    settings: Settings,
    resolver: ModelResolver,
    sources: ModelSources,
    sock: socket.socket,
    observer: ServerObserver | None = None,
    more: Sequence[socket.socket] = (),
    *,
    preloads: bool,
) -> int:
    """Build the server and run it until it stops. Returns the exit status.
    more: further sockets that listen. preloads: the default model is loaded before the first request."""
    with ExitStack() as opened:
        with interrupts_end_at_once():
            started = opened.enter_context(head_start.take())
            meter = partial(free_memory, settings.rpc)
            manager = build_manager(sources, settings, meter, started.renderer, started.worker)
            # Without effect behind a server that ran; what fails before ends no load as a crash.
            opened.callback(lambda: started.runner.run(manager.shutdown(0.0)))
            # Other processes start while this one imports the application.
            started.start(huge_pages=settings.huge_pages)
            if preloads:
                started.runner.run(manager.preload(None))
            with quick_imports():
                from jan_serve.api.server import run
                from jan_serve.control.control_plane import ServerControl

            parts = ServerParts(
                settings,
                manager,
                started.renderer,
                HelperPool(COMPILING),
                HelperPool(DECODING),
                profiles=sources.profiles,
                library=build_library(resolver, settings, meter),
                control=ServerControl(settings, manager, sources),
            )
        # Before and after uvicorn has its own handlers, the event loop makes an interrupt a cancellation.
        return run(parts, [sock, *more], started.runner, observer)


@contextmanager
def log_file(settings: Settings) -> Generator[LogFileHandler | None]:
    """The log file; None if the settings name none or it cannot be written, because the server works without it."""
    with ExitStack() as open_file:
        handler = None
        if settings.log_file is not None:
            try:
                handler = open_file.enter_context(
                    open_log_file(settings.log_file, settings.log_max_bytes, settings.log_files)
                )
            except LogFileUnavailable as error:
                output.warning(f"no log file: {error}")
        yield handler


def _check_device(name: str, peers: Sequence[str]) -> None:
    """Reject an unknown device at the start, not at the first load. Blocks for about a second."""
    try:
        known = [str(device["name"]) for device in probe_engine(peers=peers).get("devices", [])]
    except ProbeFailed as error:
        raise CommandError(str(error), "`jan-serve doctor` shows more.") from None
    if name.casefold() not in (device.casefold() for device in known):
        raise SettingsError(f"device: there is no {name!r}; llama.cpp has {', '.join(known)}")


def print_banner(
    settings: Settings, default: DefaultModel, sock: socket.socket, more: Sequence[socket.socket] = ()
) -> None:
    url = url_of(sock)
    model = f"{default.entry.name} ({default.reason})" if default.entry else f"none: {default.reason}"
    output.headline(f"jan-serve {__version__}")
    output.pairs(
        [
            ("url", url),
            *(("also", url_of(each)) for each in more),
            ("model", model),
            ("device", _device_text(settings)),
            ("models", str(settings.models_dir)),
            ("access", _access_text(settings)),
        ]
    )
    if default.entry is None:
        output.note(f"Put a GGUF file into {settings.models_dir}, or start with --model FILE.")
        return
    output.note("Open the url in a browser, chat with `jan-serve run` in another terminal, or try:")
    output.note(f"  {_first_request(url, settings)}")


def _device_text(settings: Settings) -> str:
    """The configured device; the log line of a loaded model has the actual one."""
    device = settings.device or ("cpu" if is_cpu_only() else "best available")
    layers = {"auto": "the layers that fit", "all": "all layers"}.get(
        str(settings.n_gpu_layers), f"{settings.n_gpu_layers} layers"
    )
    return device if device == "cpu" or settings.n_gpu_layers == 0 else f"{device}, {layers}"


def _access_text(settings: Settings) -> str:
    if settings.api_keys:
        return "with an API key"
    return "this machine only, no key" if settings.is_loopback else "everyone, no key"


def _first_request(url: str, settings: Settings) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]})
    key = " -H 'Authorization: Bearer YOUR-KEY'" if settings.api_keys else ""
    if os.name == "nt":
        body = body.replace('"', '\\"')
        return f'curl {url}/v1/chat/completions -H "Content-Type: application/json"{key} -d "{body}"'
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'"


serve_command = with_setting_flags(serve)

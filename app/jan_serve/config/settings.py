"""Every setting: its type, range, default and description. `settings_loader` reads the values.
One field here is one flag of `jan-serve serve`, one JAN_SERVE_* variable and one key of the configuration file: the
command line and docs/settings.md are derived from it (`options`). Two parts have files of their own: `access_options`
and `model_options`. Dialects declare their options themselves (`dialects.options`)."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from jan_serve.config.access_options import AccessOptions
from jan_serve.config.fields import (
    HOST_NAME,
    Folder,
    OptionalFile,
    PortList,
    StrList,
    budget_bytes,
    fleet_setting,
    limit,
    log_setting,
    memory_setting,
    model_setting,
    server_setting,
    storage_setting,
    url_like,
    watchdog_setting,
)
from jan_serve.config.model_options import ModelOptions
from jan_serve.core.daily_hours import DailyHours
from jan_serve.core.hosts import is_loopback
from jan_serve.store.files import default_data_dir

_NodeUrl = Annotated[str, url_like("http://192.168.1.5:8000")]


class FleetOptions(BaseModel):
    """The proxy, and what the server is there. Part of Settings."""

    model_config = ConfigDict(defer_build=True)

    proxy_url: _NodeUrl | None = fleet_setting(
        None,
        "Proxy (`jan-serve proxy`, or LMDeploy's) to join: the server registers there when it listens,"
        " renews that every half minute, and leaves when it drains.",
        metavar="URL",
    )
    proxy_key: SecretStr | None = fleet_setting(
        None,
        "Management key of the proxy. Default: the first --api-key, which the proxy has as --node-key.",
        metavar="KEY",
    )
    advertise_url: _NodeUrl | None = fleet_setting(
        None,
        "Address under which the proxy reaches this server. Default: the listening address, or the one"
        " from which this machine reaches the proxy.",
        metavar="URL",
    )
    role: Literal["hybrid", "prefill", "decode"] = fleet_setting(
        "hybrid", "What a proxy with `--serving-strategy DistServe` uses this server for."
    )
    speed: Annotated[float | None, Field(gt=0, le=1e9)] = fleet_setting(
        None, "Speed relative to the other nodes, for the proxy's first guesses."
    )


ENV_PREFIX = "JAN_SERVE_"

Part = TypeVar("Part", bound=BaseModel)
LogLevel = Literal["debug", "info", "warning", "error"]
JsonWhitespace = Literal["consistent", "flexible", "compact"]
PropertyOrder = Literal["any", "schema"]


_MAX_PEERS: Final = 16


class Settings(ModelOptions, AccessOptions, FleetOptions):
    """The validated settings of the server. Frozen: a change needs a restart, except in tables of models.
    Times are seconds, sizes bytes, lengths tokens."""

    host: Annotated[str, Field(min_length=1)] = server_setting(
        "127.0.0.1", "Address to listen on. Any but loopback requires a key or --no-auth."
    )
    port: Annotated[int, Field(ge=0, le=65535)] = server_setting(
        1337, "TCP port to listen on. 0 picks a free port."
    )
    also_listen: PortList = server_setting(
        (),
        "Further port on the same address, with the same routes and guards: programs look for Ollama at"
        " 11434. May be repeated.",
        metavar="PORT",
    )
    idle_exit_s: Annotated[float, Field(ge=0, le=31_536_000)] = server_setting(
        300.0,
        "Idle time, without requests and loaded models, after which a server started on demand"
        " (`service install --on-demand`) exits. 0 never exits.",
    )
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = limit(
        32 * 1024 * 1024, "Maximum size of a request body."
    )
    max_json_depth: Annotated[int, Field(ge=8, le=500)] = limit(
        100, "Maximum nesting depth of a JSON request body."
    )
    max_queue: Annotated[int, Field(ge=1, le=100_000)] = limit(
        256, "Maximum number of running and waiting requests; further ones get 429."
    )
    max_models: Annotated[int, Field(ge=0, le=1000)] = limit(
        4, "Maximum number of loaded models. 0 sets no limit."
    )
    memory_budget: Annotated[
        Literal["auto", "off"] | Annotated[int, Field(ge=0)], BeforeValidator(budget_bytes)
    ] = limit(
        "auto",
        "Memory for all models together, as `8GB` or in bytes. `auto` uses the machine's free memory;"
        " `off` loads models without checking memory.",
        metavar="auto|off|SIZE",
    )
    rpc: Annotated[StrList, Field(max_length=_MAX_PEERS)] = memory_setting(
        (),
        "Devices of other machines, by the address of their `jan-serve rpc-server`. Parts of a model go"
        " there if the accelerators of this machine cannot hold it.",
        metavar="HOST:PORT,…",
    )
    drain_timeout_s: Annotated[float, Field(ge=0, le=3600)] = limit(
        30.0, "Time that running requests have to finish after the signal to stop."
    )
    request_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = limit(
        1800.0, "Maximum duration of a request. 0 sets no limit."
    )
    sse_ping_s: Annotated[float, Field(gt=0, le=3600)] = limit(
        15.0, "Idle time after which an event stream sends a comment line."
    )
    write_timeout_s: Annotated[float, Field(gt=0, le=3600)] = limit(
        60.0, "Time after which a client that reads nothing from its stream is disconnected."
    )

    data_dir: Folder = storage_setting(..., "Folder for state and logs.")
    models_dir: Folder = storage_setting(
        ..., "Folder of GGUF files to serve. Default: `models` in the data folder."
    )
    grammars_dir: Folder = storage_setting(
        ...,
        "Folder of `NAME.gbnf` files that requests use by name, and of JSON Schemas (`*.json`) that a"
        " `$ref` may name. Default: `grammars` in the data folder.",
    )
    mcp_file: OptionalFile = storage_setting(
        ...,
        "File of MCP servers, whose tools `jan-serve run --mcp` and the page offer, as Claude Desktop writes it;"
        " `none` for no file. Default: `mcp.json` in the data folder. Needs `pip install 'jan-serve[mcp]'`.",
        metavar="FILE|none",
    )
    journal_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = storage_setting(
        4 << 30,
        "Maximum size of the journal in the data folder: responses in the background, files and batches."
        " 0 keeps none, and refuses these.",
    )
    chat_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = storage_setting(
        4 << 30,
        "Maximum size of the file of chats in the data folder, each for the key that wrote it. 0 keeps none: the page"
        " keeps its chats in the browser only.",
    )
    batch_hours: str | None = storage_setting(
        None,
        "Hours of the day in which batches run, as `22:00-06:00` of the local time. Default: all.",
        metavar="HH:MM-HH:MM",
    )
    batch_on_battery: bool = storage_setting(
        False, "Run batches while this machine runs on its battery, too."
    )
    hf_endpoint: Annotated[str, url_like("https://huggingface.co")] = storage_setting(
        "https://huggingface.co",
        "Model hub to pull from: the Hugging Face hub or a mirror. HF_ENDPOINT also sets it.",
        metavar="URL",
        also="HF_ENDPOINT",
    )
    hf_token: SecretStr | None = storage_setting(
        None,
        "Access token for the hub, sent over https (or to this machine) only. HF_TOKEN also sets it.",
        metavar="TOKEN",
        also="HF_TOKEN",
    )
    model: Annotated[str | None, Field(min_length=1)] = model_setting(
        None,
        "Default model: a name in the models folder or the path of a GGUF file. Default: the model of"
        " the folder that was used last, else the newest one that chats; without any, the built-in one.",
        metavar="FILE|NAME",
    )
    json_whitespace: JsonWhitespace = model_setting(
        "consistent",
        "White space of constrained JSON: `consistent` (compact, as `json.dumps` writes it, or indented"
        " by 2 spaces, 4 spaces or a tab), `flexible` (any of these at each place) or `compact`.",
    )
    property_order: PropertyOrder | None = model_setting(
        None,
        "Order of the properties of JSON: `schema`, `any`, or `listed` (any, but where a property"
        " is required, names that the schema does not list come last)."
        " Default: `listed` in arguments of tools, `schema` in answers.",
        metavar="any|listed|schema",
    )
    chat_template: StrList = model_setting(
        (),
        "`MODEL=FILE` or `MODEL=NAME`: the chat template of a model, from a Jinja file, by its name in"
        " the GGUF file, or `chatml`. May be repeated.",
        metavar="MODEL=FILE|NAME",
    )

    load_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = watchdog_setting(
        600.0, "Time without progress after which loading a model fails."
    )
    stall_decode_s: Annotated[float, Field(gt=0, le=86_400)] = watchdog_setting(
        120.0, "Time in one decode after which a worker is terminated."
    )
    stall_sample_s: Annotated[float, Field(gt=0, le=86_400)] = watchdog_setting(
        5.0, "Time in sampling one token after which a worker is terminated."
    )
    retry: Annotated[int, Field(ge=0, le=2)] = watchdog_setting(
        2,
        "How often a request goes on in a new worker after its worker ended, the second time alone. It"
        " counts anew with each token. 0: it ends with an error.",
    )

    log_level: LogLevel = log_setting("info", "Lowest severity to log.")
    log_json: bool = log_setting(False, "Write log lines as JSON objects.")
    log_file: OptionalFile = log_setting(
        ...,
        "Log file in addition to standard error; `none` for no file. Default: `logs/server.log` in the"
        " data folder.",
        metavar="FILE|none",
    )
    log_max_bytes: Annotated[int, Field(ge=64 * 1024, le=1 << 40)] = log_setting(
        10 * 1024 * 1024, "Size at which the log file is renamed to `server.log.1`."
    )
    log_files: Annotated[int, Field(ge=2, le=1000)] = log_setting(
        3, "Number of log files to keep, including the current one."
    )

    keep_prompts: Annotated[int, Field(ge=0, le=512)] = log_setting(
        0,
        "Number of latest requests whose rendered prompt stays in memory, for `GET /extras/requests/ID/prompt` with the"
        " key of the request. 64 MiB at most; never logged.",
    )
    otel_endpoint: Annotated[str, url_like("http://localhost:4318")] | None = log_setting(
        None,
        "Collector of OpenTelemetry (OTLP over HTTP, as `http://localhost:4318`) that gets a trace of each request:"
        " times and counts, no text. Needs `pip install 'jan-serve[otel]'`.",
        metavar="URL",
    )

    @model_validator(mode="before")
    @classmethod
    def _place_folders(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Derive the folders of models and grammars, the log file and that of MCP servers from the data folder."""
        data_dir = Path(values.get("data_dir", default_data_dir()))
        derived = {
            "data_dir": data_dir,
            "models_dir": data_dir / "models",
            "grammars_dir": data_dir / "grammars",
            "log_file": data_dir / "logs" / "server.log",
            "mcp_file": data_dir / "mcp.json",
        }
        return derived | values

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return host
        name = HOST_NAME.match(host)
        if name is not None and name[2]:
            raise ValueError("takes no port: --port sets it")
        if name is None or host.startswith("["):
            raise ValueError("is neither an IP address nor a host name")
        return host

    @field_validator("rpc")
    @classmethod
    def _check_peers(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        peers = tuple(peer.strip() for text in texts for peer in text.split(","))
        if len(peers) > _MAX_PEERS:
            raise ValueError(f"{len(peers)} machines; {_MAX_PEERS} at most")
        for text in peers:
            host, _, port = text.rpartition(":")
            if not host or not HOST_NAME.match(text) or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"{text!r} is not HOST:PORT of a jan-serve rpc-server")
            if host.startswith("["):
                raise ValueError(
                    f"{text!r} is an IPv6 address; llama.cpp reaches other machines by IPv4 alone"
                )
        return peers

    @field_validator("batch_hours")
    @classmethod
    def _check_hours(cls, text: str | None) -> str | None:
        if text is not None:
            DailyHours.parse(text)
        return text

    @field_validator("hf_token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        text = token.get_secret_value().strip() if token is not None else ""
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("a token may hold printable ASCII characters without blanks only")
        return SecretStr(text) if text else None

    @model_validator(mode="after")
    def _check_exposure(self) -> Self:
        if not self.is_loopback and not self.api_keys and not self.no_auth:
            raise ValueError(
                f"host {self.host} can be reached from other machines, and no API key is set. Set one with"
                " --api-key (or JAN_SERVE_API_KEYS), or pass --no-auth to serve everyone."
            )
        return self

    @model_validator(mode="after")
    def _check_proxy(self) -> Self:
        proxy = urlsplit(self.proxy_url or "").hostname
        if proxy and not self.advertise_url and self.is_loopback and not is_loopback(proxy):
            raise ValueError(
                f"host {self.host} is this machine only, and the proxy at {proxy} cannot reach it. Listen on"
                " --host 0.0.0.0 with an --api-key that the proxy knows as --node-key."
            )
        return self

    def part(self, kind: type[Part]) -> Part:
        """The options of a dialect; their defaults where these settings were read without it."""
        return self if isinstance(self, kind) else kind()

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names by which clients may call the server, besides its addresses."""
        advertised = urlsplit(self.advertise_url or "").hostname
        return (*self.allowed_hosts, advertised) if advertised else self.allowed_hosts

    @property
    def is_loopback(self) -> bool:
        """Whether the listening address is reachable from this machine only."""
        return is_loopback(self.host)

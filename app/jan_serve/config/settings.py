"""Every setting: its type, range, default and description. `settings_loader` reads the values.

One field here is one flag of `jan-serve serve`, one JAN_SERVE_* variable and one key of the configuration file: the
command line and docs/settings.md are derived from it (`options`).
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from jan_serve.config.model_options import MEMORY_GROUP, MODEL_GROUP, Flag, ModelOptions
from jan_serve.config.tgi_options import TGI_GROUP, TgiOptions
from jan_serve.core.hosts import is_loopback
from jan_serve.store.paths import default_data_dir

ENV_PREFIX = "JAN_SERVE_"

LogLevel = Literal["debug", "info", "warning", "error"]


def _split_list(value: object) -> object:
    """Split a comma-separated string, the form of lists in environment variables."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _none_word(value: object) -> object:
    """`none` means no file: flags, variables and TOML have no null."""
    return None if value == "none" else value


def _bytes_of_size(value: object) -> object:
    """`8GB`, `7.5 GiB` and `500M` as bytes. Anything else is left to the field's type."""
    match = _SIZE.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    power = "kmgt".find(match["prefix"].lower()) + 1 if match["prefix"] else 0
    return int(float(match["number"]) * (1024 if match["binary"] else 1000) ** power)


StrList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_list)]
PortList = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65535)], ...], NoDecode, BeforeValidator(_split_list)
]
SecretList = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split_list)]
Folder = Annotated[Path, AfterValidator(_absolute)]
OptionalFile = Annotated[Folder | None, BeforeValidator(_none_word)]

_SERVER = "Server"
_GUARDS = "Access"
_LIMITS = "Limits"
_STORE = "Storage"
_FLEET = "Many machines"
_WATCH = "Watchdog"
_LOG = "Logging"
GROUPS: Final = (
    _SERVER, _GUARDS, _FLEET, _LIMITS, _STORE, MODEL_GROUP, MEMORY_GROUP, TGI_GROUP, _WATCH, _LOG
)  # fmt: skip
"""In display order."""

_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+\Z")
_ROUTE = re.compile(r"(/[A-Za-z0-9._-]+)+\Z")
_SIZE = re.compile(
    r"(?P<number>\d{1,15}(\.\d{1,6})?) ?((?P<prefix>[kmgt])(?P<binary>i)?)?b?\Z", re.IGNORECASE
)
_HOST_NAME = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(:\d{1,5})?\Z")


class Settings(ModelOptions, TgiOptions):
    """The validated settings of the server. Frozen: a change needs a restart, except in tables of models.

    Times are seconds, sizes bytes, lengths tokens.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        validate_default=True,
        hide_input_in_errors=True,
    )

    host: Annotated[
        str,
        Field(
            min_length=1, description="Address to listen on. Any but loopback requires a key or --no-auth."
        ),
        Flag(_SERVER),
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="TCP port to listen on. 0 picks a free port."), Flag(_SERVER)
    ] = 1337
    also_listen: Annotated[
        PortList,
        Field(
            description="Further port on the same address, with the same routes and guards: programs look for Ollama at"
            " 11434. May be repeated."
        ),
        Flag(_SERVER, metavar="PORT"),
    ] = ()
    idle_exit_s: Annotated[
        float,
        Field(
            ge=0,
            le=31_536_000,
            description="Idle time, without requests and loaded models, after which a server started on demand"
            " (`service install --on-demand`) exits. 0 never exits.",
        ),
        Flag(_SERVER),
    ] = 300.0
    api_keys: Annotated[
        SecretList,
        Field(
            description="Keys that callers may present as `Authorization: Bearer` or `x-api-key`. With several, cached"
            " prompts are shared only between requests of the same key."
        ),
        Flag(_GUARDS, name="--api-key", metavar="KEY"),
    ] = ()
    no_auth: Annotated[
        bool,
        Field(
            description="Listen beyond loopback without a key: anyone who can reach the port can use the server."
        ),
        Flag(_GUARDS),
    ] = False
    allowed_hosts: Annotated[
        StrList,
        Field(description="Names accepted in the Host header besides loopback names and the bound address."),
        Flag(_GUARDS, name="--allowed-host", metavar="NAME"),
    ] = ()
    allowed_origins: Annotated[
        StrList,
        Field(
            description="Web origins that may call the API besides loopback ones and those of desktop applications"
            " (Tauri, Obsidian, VS Code). `*` allows every origin."
        ),
        Flag(_GUARDS, name="--allowed-origin", metavar="ORIGIN"),
    ] = ()

    open_networks: Annotated[
        StrList,
        Field(
            description="Networks, as `192.168.1.0/24`, whose clients need no key on `open_routes`: for programs that"
            " cannot send one. Requests that a proxy forwards always need it."
        ),
        Flag(_GUARDS, name="--open-network", metavar="NETWORK"),
    ] = ()
    open_routes: Annotated[
        StrList,
        Field(description="Routes, with all below them, that `open_networks` may use without a key."),
        Flag(_GUARDS, name="--open-route", metavar="PATH"),
    ] = (
        "/api/version",
        "/api/tags",
        "/api/ps",
        "/api/show",
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
    )
    enable_abort_handling: Annotated[
        bool,
        Field(description="Let clients abort each other's requests (LMDeploy's `/abort_request`)."),
        Flag(_GUARDS),
    ] = False
    allow_terminate_by_client: Annotated[
        bool, Field(description="Let clients stop the server (LMDeploy's `/terminate`)."), Flag(_GUARDS)
    ] = False

    proxy_url: Annotated[
        str | None,
        Field(
            description="Proxy (`jan-serve proxy`, or LMDeploy's) to join: the server registers there when it listens,"
            " renews that every half minute, and leaves when it drains."
        ),
        Flag(_FLEET, metavar="URL"),
    ] = None
    proxy_key: Annotated[
        SecretStr | None,
        Field(description="Management key of the proxy."),
        Flag(_FLEET, metavar="KEY"),
    ] = None
    advertise_url: Annotated[
        str | None,
        Field(
            description="Address under which the proxy reaches this server. Default: the listening address, or the one"
            " from which this machine reaches the proxy."
        ),
        Flag(_FLEET, metavar="URL"),
    ] = None
    role: Annotated[
        Literal["hybrid", "prefill", "decode"],
        Field(description="What a proxy with `--serving-strategy DistServe` uses this server for."),
        Flag(_FLEET),
    ] = "hybrid"
    speed: Annotated[
        float | None,
        Field(gt=0, le=1e9, description="Speed relative to the other nodes, for the proxy's first guesses."),
        Flag(_FLEET, metavar="NUMBER"),
    ] = None

    max_body_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30, description="Maximum size of a request body."), Flag(_LIMITS)
    ] = 8 * 1024 * 1024
    response_store_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=1 << 40,
            description="Memory for responses of `/v1/responses` that `previous_response_id` can continue; the least"
            " recently used are dropped first. 0 keeps none.",
        ),
        Flag(_LIMITS),
    ] = 64 * 1024 * 1024
    max_json_depth: Annotated[
        int, Field(ge=8, le=500, description="Maximum nesting depth of a JSON request body."), Flag(_LIMITS)
    ] = 100
    max_queue: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Maximum number of running and waiting requests; further ones get 429.",
        ),
        Flag(_LIMITS),
    ] = 256
    max_models: Annotated[
        int,
        Field(ge=0, le=1000, description="Maximum number of loaded models. 0 sets no limit."),
        Flag(_LIMITS),
    ] = 4
    memory_budget: Annotated[
        Literal["auto", "off"] | Annotated[int, Field(ge=0)],
        BeforeValidator(_bytes_of_size),
        Field(
            description="Memory for all models together, as `8GB` or in bytes. `auto` uses the machine's free memory;"
            " `off` loads models without checking memory."
        ),
        Flag(_LIMITS, metavar="auto|off|SIZE"),
    ] = "auto"
    drain_timeout_s: Annotated[
        float,
        Field(
            ge=0, le=3600, description="Time that running requests have to finish after the signal to stop."
        ),
        Flag(_LIMITS),
    ] = 30.0
    request_timeout_s: Annotated[
        float,
        Field(ge=0, le=86_400, description="Maximum duration of a request. 0 sets no limit."),
        Flag(_LIMITS),
    ] = 1800.0
    sse_ping_s: Annotated[
        float,
        Field(gt=0, le=3600, description="Idle time after which an event stream sends a comment line."),
        Flag(_LIMITS),
    ] = 15.0
    write_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="Time after which a client that reads nothing from its stream is disconnected.",
        ),
        Flag(_LIMITS),
    ] = 60.0

    data_dir: Annotated[
        Folder,
        Field(description="Folder for state and logs."),
        Flag(_STORE),
    ]
    models_dir: Annotated[
        Folder,
        Field(
            description="Folder of GGUF files to serve. Default: `models` in the data folder.",
        ),
        Flag(_STORE),
    ]
    grammars_dir: Annotated[
        Folder,
        Field(
            description="Folder of `NAME.gbnf` files that requests use by name. Default: `grammars` in the data"
            " folder.",
        ),
        Flag(_STORE),
    ]
    hf_endpoint: Annotated[
        str,
        Field(
            description="Model hub to pull from: the Hugging Face hub or a mirror. HF_ENDPOINT also sets it."
        ),
        Flag(_STORE, metavar="URL"),
    ] = "https://huggingface.co"
    hf_token: Annotated[
        SecretStr | None,
        Field(
            description="Access token for the hub, sent over https (or to this machine) only. HF_TOKEN also sets it."
        ),
        Flag(_STORE, metavar="TOKEN"),
    ] = None
    model: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Default model: a name in the models folder or the path of a GGUF file. Default: the only model"
            " in the folder, else the built-in one.",
        ),
        Flag(MODEL_GROUP, metavar="FILE|NAME"),
    ] = None
    strip_billing_line: Annotated[
        bool,
        Field(
            description="Remove a first line `x-anthropic-billing-header: …` from system prompts: it changes with each"
            " request and would prevent reuse of the cached prompt."
        ),
        Flag(MODEL_GROUP),
    ] = True
    chat_template: Annotated[
        StrList,
        Field(
            description="`MODEL=FILE` or `MODEL=NAME`: the chat template of a model, from a Jinja file, by its name in"
            " the GGUF file, or `chatml`. May be repeated.",
        ),
        Flag(MODEL_GROUP, metavar="MODEL=FILE|NAME"),
    ] = ()

    load_timeout_s: Annotated[
        float,
        Field(gt=0, le=86_400, description="Time without progress after which loading a model fails."),
        Flag(_WATCH),
    ] = 600.0
    stall_decode_s: Annotated[
        float,
        Field(gt=0, le=86_400, description="Time in one decode after which a worker is terminated."),
        Flag(_WATCH),
    ] = 120.0
    stall_sample_s: Annotated[
        float,
        Field(gt=0, le=86_400, description="Time in sampling one token after which a worker is terminated."),
        Flag(_WATCH),
    ] = 5.0

    log_level: Annotated[LogLevel, Field(description="Lowest severity to log."), Flag(_LOG)] = "info"
    log_json: Annotated[bool, Field(description="Write log lines as JSON objects."), Flag(_LOG)] = False
    log_file: Annotated[
        OptionalFile,
        Field(
            description="Log file in addition to standard error; `none` for no file. Default: `logs/server.log` in the"
            " data folder."
        ),
        Flag(_LOG, metavar="FILE|none"),
    ]
    log_max_bytes: Annotated[
        int,
        Field(
            ge=64 * 1024, le=1 << 40, description="Size at which the log file is renamed to `server.log.1`."
        ),
        Flag(_LOG),
    ] = 10 * 1024 * 1024
    log_files: Annotated[
        int,
        Field(ge=2, le=1000, description="Number of log files to keep, including the current one."),
        Flag(_LOG),
    ] = 3

    @model_validator(mode="before")
    @classmethod
    def _place_folders(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Derive the folders of models and grammars and the log file from the data folder."""
        data_dir = values.get("data_dir", default_data_dir())
        models_dir = values.get("models_dir", Path(data_dir) / "models")
        grammars_dir = values.get("grammars_dir", Path(data_dir) / "grammars")
        log_file = values.get("log_file", Path(data_dir) / "logs" / "server.log")
        return values | {
            "data_dir": data_dir,
            "models_dir": models_dir,
            "grammars_dir": grammars_dir,
            "log_file": log_file,
        }

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        if not _HOST_NAME.match(host) and not _is_address(host):
            raise ValueError("is neither an IP address nor a host name")
        return host

    @field_validator("proxy_url", "advertise_url")
    @classmethod
    def _check_node_url(cls, url: str | None) -> str | None:
        return None if url is None else cls._check_url(url, "http://192.168.1.5:8000")

    @field_validator("hf_endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str) -> str:
        return cls._check_url(endpoint, "https://huggingface.co")

    @staticmethod
    def _check_url(endpoint: str, example: str) -> str:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError(f"must be an address such as {example}, without user and password")
        if parts.query or parts.fragment or not endpoint.isascii() or not endpoint.isprintable():
            raise ValueError("must end with the host or a path")
        return endpoint.rstrip("/")

    @field_validator("hf_token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        text = token.get_secret_value().strip() if token is not None else ""
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("a token may hold printable ASCII characters without blanks only")
        return SecretStr(text) if text else None

    @field_validator("api_keys")
    @classmethod
    def _check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in keys:
            text = key.get_secret_value()
            if not text:
                raise ValueError("an empty key is not a key")
            if not text.isascii() or not text.isprintable() or " " in text:
                raise ValueError("a key may hold printable ASCII characters without blanks only")
        return keys

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST_NAME.match(host):
                raise ValueError(f"{host!r} is not a host name (with an optional port)")
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _ORIGIN.match(origin):
                raise ValueError(f"{origin!r} is not an origin: scheme://host, with an optional port")
        return origins

    @field_validator("open_networks")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for text in networks:
            try:
                network = ipaddress.ip_network(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a network such as 192.168.1.0/24") from None
            if network.prefixlen == 0:
                raise ValueError(f"{text} is every address; --no-auth serves everyone")
        return networks

    @field_validator("open_routes")
    @classmethod
    def _check_routes(cls, routes: tuple[str, ...]) -> tuple[str, ...]:
        for route in routes:
            if not _ROUTE.match(route):
                raise ValueError(f"{route!r} is not a route such as /api/chat")
        return routes

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

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        max_input, max_total = self.tgi_max_input_tokens, self.tgi_max_total_tokens
        if max_input is not None and max_total is not None and max_input >= max_total:
            raise ValueError(
                f"tgi_max_input_tokens {max_input} must be below tgi_max_total_tokens {max_total}"
            )
        return self

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names by which clients may call the server, besides its addresses."""
        advertised = urlsplit(self.advertise_url or "").hostname
        return (*self.allowed_hosts, advertised) if advertised else self.allowed_hosts

    @property
    def is_loopback(self) -> bool:
        """Whether the listening address is reachable from this machine only."""
        return is_loopback(self.host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

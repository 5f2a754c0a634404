"""`jan-serve cluster`: servers of one proxy that Ray places on Linux machines, restarts and scales."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from pydantic import SecretStr

from jan_serve.cli.arguments import JsonOption, argument
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.servers.nodes import print_nodes
from jan_serve.cli.errors import FAILED, CommandError, WrongUse
from jan_serve.cli.options import load_settings, setting_options
from jan_serve.cli.output import output
from jan_serve.cluster import head as ray_head
from jan_serve.cluster import ray_serve
from jan_serve.cluster.cluster_file import ClusterFile, ClusterMachine, capacity, read_cluster_file
from jan_serve.cluster.head import ClusterRecord, forget_record, read_record, record_file, write_record
from jan_serve.cluster.ray_serve import ClusterFailed
from jan_serve.cluster.replica import NoWay, listening_host, server_settings
from jan_serve.config.fields import near_key
from jan_serve.config.settings_loader import ServerAddress, checked_url
from jan_serve.errors import SettingsError
from jan_serve.store.files import default_data_dir, user_path

_JOINING: Final = "Any other machine joins the same proxy with `jan-serve serve --proxy-url URL`."
_FILE_HINT: Final = (
    "FILE is TOML: proxy_url names the proxy, [replicas] says how many servers run, and [serve] has their"
    " settings."
)

cluster_app = typer.Typer(
    help="Servers of one proxy that Ray places, restarts and scales (Linux).", no_args_is_help=True
)


@cluster_app.command("up")
def up(
    file: Annotated[Path, argument("FILE", "The cluster (TOML); docs/many-machines.md explains it.")],
) -> None:
    """Start the servers of FILE, or replace running ones by it, one after another. Starts Ray if it does not run."""
    _require_linux()
    try:
        wanted = _checked(read_cluster_file(user_path(file).absolute()))
    except SettingsError as error:
        raise WrongUse(error.message, _FILE_HINT) from None
    _require_ray()
    with _explained():
        with _proxy(wanted) as client:
            client.get("/extras/nodes")  # our proxy answers there, and takes the key
        address = _running_ray(wanted)
        with ray_serve.connected(address):
            machines = [machine for machine in ray_serve.machines() if machine.alive]
            _warn_of_room(wanted, machines)
            output.note(
                "Another Linux machine joins Ray with RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 ray start"
                f" --address={address} (and the token of ~/.ray/auth_token)."
            )
            output.note(_JOINING)
            output.note("Starting the servers; each loads its model when the first request comes.")
            ray_serve.deploy(wanted)
    least, most = wanted.replicas.min, wanted.replicas.max
    number = str(least) if least == most else f"{least} to {most}"
    output.pairs([("proxy", wanted.proxy_url), ("servers", number), ("Ray", address)])


@cluster_app.command("status")
def status(as_json: JsonOption = False) -> None:
    """The machines that Ray has, and the nodes of the proxy."""
    _require_linux()
    record = _require_record()
    _require_ray()
    with _explained(), ray_serve.connected(record.address):
        machines = ray_serve.machines()
    with _proxy(record.file) as client:
        content = client.get("/extras/nodes")
    nodes: list[dict[str, Any]] = content["nodes"]
    if as_json:
        listed = [
            {"address": each.address, "alive": each.alive, "cpus": each.cpus, "gpus": each.gpus}
            for each in machines
        ]
        output.json({"address": record.address, "machines": listed, "nodes": nodes})
        return
    output.table(
        ("machine", "state", "CPUs", "GPUs"),
        [
            (each.address, "alive" if each.alive else "dead", f"{each.cpus:g}", f"{each.gpus:g}")
            for each in machines
        ],
    )
    print_nodes(nodes)
    output.note(f"Ray at {record.address}, proxy at {record.file.proxy_url}")


@cluster_app.command("down")
def down() -> None:
    """End the servers, whose running answers finish first, and the Ray that `up` started."""
    _require_linux()
    record = _require_record()
    _require_ray()
    head = record.head
    with _explained():
        if head is None or ray_head.is_running(head):
            output.note("Ending the servers; running answers finish.")
            with ray_serve.connected(record.address):
                ray_serve.end(record.file.replicas.drain_s)
        if head is not None:
            ray_head.stop_head(head)
    forget_record(record_file(default_data_dir()))
    if head is None:
        output.note(f"The servers ended. Ray at {record.address} runs on: `up` did not start it.")


def _require_linux() -> None:
    if sys.platform != "linux":
        raise WrongUse("Ray joins machines with Linux only.", _JOINING)


def _require_ray() -> None:
    ray_serve.prepare()
    if ray_serve.ray_version() is None:
        raise WrongUse(
            "Ray is not installed here.",
            "In a checkout `scripts/install cluster` installs it into .venv-cluster;"
            " of a wheel, install the extra: pip install 'FILE.whl[cluster]'.",
        )


def _require_record() -> ClusterRecord:
    record = read_record(record_file(default_data_dir()))
    if record is None:
        raise CommandError(
            "no cluster was started from this machine.", "`jan-serve cluster up FILE` starts one."
        )
    return record


def _checked(file: ClusterFile) -> ClusterFile:
    """Return the file with its proxy URL in one form. Raises SettingsError for what no server would accept."""
    url = checked_url(file.proxy_url, "proxy_url")
    try:
        host = listening_host(url)
    except NoWay as error:
        raise SettingsError(f"proxy_url: {error}") from None
    known = {option.field for option in setting_options()}
    if unknown := sorted(file.serve.keys() - known):
        raise SettingsError(f"serve.{unknown[0]}: there is no such setting{near_key(unknown[0], known)}")
    load_settings(server_settings(file, host))
    return msgspec.structs.replace(file, proxy_url=url)


def _proxy(file: ClusterFile) -> ServerClient:
    key = SecretStr(file.proxy_key) if file.proxy_key is not None else None
    return ServerClient(ServerAddress(file.proxy_url, "proxy_url", key, "proxy_key"), "proxy")


def _running_ray(file: ClusterFile) -> str:
    """The address of the cluster, which runs from now on. Raises ClusterFailed."""
    record = read_record(record_file(default_data_dir()))
    head = record.head if record is not None else None
    if record is not None and head is not None and ray_head.is_running(head):
        if file.ray_address not in (None, record.address):
            raise ClusterFailed(
                f"`up` started Ray at {record.address}, and the file names {file.ray_address}",
                "`jan-serve cluster down` ends the running one.",
            )
        address = record.address
    elif file.ray_address is not None:
        address, head = file.ray_address, None
        if not ray_head.requires_token(address):
            raise ClusterFailed(
                f"the Ray cluster at {address} takes everyone: whoever reaches it can run programs there",
                "Start all of it with RAY_AUTH_MODE=token.",
            )
    else:
        output.note("Starting Ray.")
        ray_head.make_token()
        host = file.host or listening_host(file.proxy_url)
        head = ray_head.start_head(host, file.ray_port, default_data_dir() / "ray-head.log")
        address = f"{host}:{file.ray_port}"
    write_record(record_file(default_data_dir()), ClusterRecord(address, file, head))
    return address


def _warn_of_room(file: ClusterFile, machines: list[ClusterMachine]) -> None:
    wanted = file.replicas
    room = capacity(wanted, machines)
    if room < wanted.min:
        output.warning(
            f"there is room for {room} of {wanted.min} servers: Ray starts the others when machines join"
        )
    if wanted.min == 1 and wanted.surge_percent == 0:
        output.warning(
            "an update of the only server interrupts it: set replicas.min = 2 or replicas.surge_percent"
        )


@contextlib.contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except ClusterFailed as error:
        raise CommandError(str(error), error.next_step, FAILED) from None

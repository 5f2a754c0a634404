"""The only module that imports Ray, which reads its environment then: `prepare` comes first. Without types here."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Generator
from typing import Any, Final, cast

import msgspec

from jan_serve.cluster.cluster_file import ClusterFile, ClusterMachine
from jan_serve.cluster.replica import Replica
from jan_serve.cluster.scaling import by_open_requests

APPLICATION: Final = "jan-serve"
DEPLOYMENT: Final = "Replica"
VARIABLES: Final = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
_CHECK_S: Final = 3.0
_CHECK_LIMIT_S: Final = 15.0
_END_S: Final = 30.0


class ClusterFailed(Exception):
    """Ray refused or failed. next_step: what helps, if that is known."""

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.next_step = next_step


def prepare() -> None:
    """Tokens on, usage statistics off, for this process and those it starts."""
    os.environ.update(VARIABLES)


def ray_version() -> str | None:
    """None if Ray is not installed."""
    try:
        return str(_ray().__version__)
    except ImportError:
        return None


@contextlib.contextmanager
def connected(address: str) -> Generator[None]:
    """Use the cluster at `host:port` in the block. Raises ClusterFailed."""
    ray = _ray()
    try:
        ray.init(address=address, namespace=APPLICATION, log_to_driver=False, logging_level="error")
    except Exception as error:
        raise ClusterFailed(f"no Ray cluster at {address} takes this machine: {_last_line(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def machines() -> list[ClusterMachine]:
    """Machines of the cluster. Only within `connected`."""
    return [
        ClusterMachine(
            str(node["NodeID"]),
            str(node["NodeManagerAddress"]),
            bool(node["Alive"]),
            float(node["Resources"].get("CPU", 0)),
            float(node["Resources"].get("GPU", 0)),
        )
        for node in _ray().nodes()
    ]


def deploy(file: ClusterFile) -> None:
    """Run the replicas of the file; they replace those of an earlier one, one after another. Blocks until all run,
    which may wait for machines. Raises ClusterFailed."""
    serve = _serve()
    wanted = file.replicas
    options: dict[str, Any] = {
        "name": DEPLOYMENT,
        "ray_actor_options": {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus},
        "max_replicas_per_node": wanted.per_machine,
        "graceful_shutdown_timeout_s": wanted.drain_s + _END_S,
        "health_check_period_s": _CHECK_S,
        "health_check_timeout_s": _CHECK_LIMIT_S,
        "max_surge_percent": wanted.surge_percent,
    }
    if wanted.min == wanted.max:
        options["num_replicas"] = wanted.min
    else:
        look_back_s = max(wanted.grow_s, 1.0)
        options["autoscaling_config"] = {
            "min_replicas": wanted.min,
            "max_replicas": wanted.max,
            "upscale_delay_s": wanted.grow_s,
            "downscale_delay_s": wanted.shrink_s,
            "look_back_period_s": look_back_s,
            "metrics_interval_s": min(10.0, look_back_s / 2),
            "policy": {"policy_function": by_open_requests},
        }
    try:
        application = serve.deployment(**options)(Replica).bind(msgspec.to_builtins(file))
        serve.start(proxy_location="Disabled")
        serve.run(application, name=APPLICATION, route_prefix=None)
    except Exception as error:
        raise ClusterFailed(f"the replicas did not start: {error}") from None


def end(drain_s: float) -> None:
    """End all replicas, whose running answers have `drain_s` to finish, and Ray Serve. Blocks. Raises ClusterFailed."""
    serve = _serve()
    deadline = time.monotonic() + drain_s + _END_S
    try:
        while not _deleted(serve):
            if time.monotonic() > deadline:
                raise TimeoutError("not in time")
        serve.shutdown()
    except Exception as error:
        raise ClusterFailed(f"the replicas did not end: {_last_line(error)}") from None


def _deleted(serve: Any) -> bool:
    """Waits for a minute, which is Ray's limit."""
    try:
        serve.delete(APPLICATION)
    except TimeoutError:
        return False
    return True


def _ray() -> Any:
    prepare()
    import ray  # pyright: ignore[reportMissingImports]

    return cast(Any, ray)


def _serve() -> Any:
    prepare()
    from ray import serve  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    return cast(Any, serve)


def _last_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[-1][:500]

"""Time limits and sizes that the supervisor keeps. Values only; wiring fills them from the settings. All in seconds."""

from __future__ import annotations

import msgspec


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When one worker counts as stuck, and how it is ended.

    load_s: without progress of the load. decode_s: in one `llama_decode` (prefill chunk or step). sample_s: in
    sampling one token, which llama.cpp cannot interrupt. other_s: in any other phase, or idle beside open requests.
    silent_s: without answer to a ping. ping_s: between pings while there is work; an idle worker is not pinged.
    stop_s: from asking to SIGKILL; a worker writes its cache to disk in that time.
    """

    load_s: float = 300.0
    decode_s: float = 120.0
    sample_s: float = 5.0
    other_s: float = 60.0
    silent_s: float = 30.0
    ping_s: float = 1.0
    stop_s: float = 8.0


class RestartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What happens after crashes of one model.

    backoff_s: pause after the first, second … crash in a row; the last one repeats. max_crashes within window_s
    make the model failed for cooldown_s. A worker that was ready for window_s ends the row. patience_s: the longest
    pause that a request waits for; above it the request is refused with Retry-After.
    """

    backoff_s: tuple[float, ...] = (1.0, 2.0, 4.0)
    max_crashes: int = 3
    window_s: float = 60.0
    cooldown_s: float = 60.0
    patience_s: float = 2.5


class ManagerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """max_loaded: models in memory at once, 0 is no limit. memory_budget: bytes for all of them; None: what is free.

    max_queue: requests of one model that wait, beyond those that run.
    """

    max_loaded: int = 1
    memory_budget: int | None = None
    max_queue: int = 256
    worker: WorkerLimits = WorkerLimits()
    restart: RestartLimits = RestartLimits()

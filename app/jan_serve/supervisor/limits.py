"""Limits of the supervisor: values that wiring fills from the settings. Times in seconds."""

from __future__ import annotations

import msgspec

from jan_serve.supervisor.crash_backoff import RestartLimits


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Stall limits of one worker, and how it is stopped.

    load_s: load without progress. decode_s: one `llama_decode` (prefill chunk or step), or the tokenising
    of one part of a text. sample_s: sampling of one
    token, which llama.cpp cannot interrupt. encode_s: one part of an image, which may be the whole image: minutes for a
    large one on a slow CPU; and the wait for the turn of another team of threads, which may encode such a part.
    other_s: any other phase, or idle while requests are open. silent_s: ping without an answer, in a load too.
    ping_s: between pings while there is work; an idle worker is not pinged. stop_s: from the stop request to SIGKILL;
    the worker writes its cache to disk meanwhile.
    """

    load_s: float = 300.0
    decode_s: float = 120.0
    sample_s: float = 5.0
    encode_s: float = 1200.0
    other_s: float = 60.0
    silent_s: float = 30.0
    ping_s: float = 1.0
    stop_s: float = 8.0


class ManagerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """max_loaded: models in memory at once, 0 is no limit. memory_budget: bytes for all of them; None: all free
    memory. max_queue: waiting requests of one model, beyond those that run. retry: see `Tries`."""

    max_loaded: int = 1
    memory_budget: int | None = None
    max_queue: int = 256
    retry: int = 2
    worker: WorkerLimits = WorkerLimits()
    restart: RestartLimits = RestartLimits()

"""Trial load: checks in a separate worker that a model file loads and computes one token."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.placement import PlacementOptions
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.errors import InvalidModel, JanServeError
from jan_serve.ipc.messages import EmbedRequest, EngineRequest, EngineSettings, LoadModel
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.worker_process import WorkerEnd, WorkerProcess

_N_CTX = 256
_PROMPT = "Hello"


async def try_model(
    name: str, path: str, settings: EngineSettings, command: Sequence[str], limits: WorkerLimits
) -> None:
    """Returns once the file gave a token and its worker is gone. Runs on the CPU from the mapped file, whatever the
    settings, to need little memory beside the loaded models. Raises InvalidModel with the reason,
    InsufficientMemory."""
    changed = asyncio.Event()
    worker = WorkerProcess(name, command, limits, on_change=changed.set)
    load = LoadModel(path=path, settings=_small(settings))
    try:
        await worker.start(load)
        while worker.outcome is None:
            changed.clear()
            await changed.wait()
        match worker.outcome:
            case ModelFacts() as facts:
                client = WorkerEngineClient(name, facts, worker)
                worker.listen(client)
                await _use(client)
            case WorkerEnd() as end:
                raise InvalidModel(f"the updated model could not be loaded: {end}")
            case error:
                raise error
    except OSError as error:
        raise InvalidModel(f"the updated model could not be tried: {error.strerror}") from None
    finally:
        await worker.stop()


async def _use(client: WorkerEngineClient) -> None:
    """Raises InvalidModel if the model computes nothing."""
    try:
        if client.facts.is_embedding_model:
            await client.ask(EmbedRequest(inputs=(_PROMPT,)))
            return
        request = EngineRequest(
            id=client.next_id(),
            prompt=(_PROMPT,),
            sampling=SamplingParams(temperature=0.0),
            stopping=StopConditions(max_tokens=1),
            cache_salt="",
        )
        async for _ in client.generate(request):
            pass
    except JanServeError as error:
        raise InvalidModel(f"the updated model does not work: {error.message}") from None


def _small(settings: EngineSettings) -> EngineSettings:
    return msgspec.structs.replace(
        settings,
        n_ctx=_N_CTX,
        parallel=1,
        placement=PlacementOptions(n_gpu_layers=0),
        rpc=(),
        use_mmap=True,
        use_mlock=False,
        cache_sequences=0,
        cache_ram_bytes=0,
        cache_disk_bytes=0,
        cache_dir=None,
    )

"""The models on disk, for dialects that show and manage them: the library off the event loop, with the manager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from jan_serve.core.closing import closing
from jan_serve.core.measurements import Calibration
from jan_serve.core.models import (
    ListedModel,
    MetadataValue,
    ModelDetails,
    PulledFile,
    PullStep,
    TensorFacts,
    Variant,
)
from jan_serve.core.placement import MAX_DEFAULT_N_CTX, MIN_DEFAULT_N_CTX
from jan_serve.errors import ModelNotFound
from jan_serve.store.blobs import digest_of
from jan_serve.store.gguf.gguf_header import ArrayValue, GgufHeader
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager

if TYPE_CHECKING:
    from jan_serve.store.hub.pull import PullPlan

logger = logging.getLogger(__name__)


class ModelStore:
    """The models of one server. Event loop only; no method blocks it. Errors are those of the library.

    follow: runs a pull, and tells of its progress as `/models/sse` does.
    """

    def __init__(
        self,
        manager: ModelManager,
        library: ModelLibrary,
        follow: Callable[[str, PullPlan], AsyncGenerator[dict[str, Any]]],
    ) -> None:
        self._manager = manager
        self._library = library
        self._follow = follow

    async def models(self) -> Sequence[ListedModel]:
        """All of them, within milliseconds; never waits for a load."""
        return await self._library.models()

    async def unknown(self, name: str) -> ModelNotFound:
        """The error for a name that no list has, with a remedy."""
        return await asyncio.to_thread(self._library.unknown, name)

    async def details(self, name: str) -> ModelDetails:
        """Reads the header."""
        listed, header = await asyncio.to_thread(self._library.details, name)
        state = next((each for each in self._manager.snapshot().models if each.name == listed.name), None)
        if state is not None and state.facts is not None:
            n_ctx = state.facts.n_ctx
        else:
            settings = await self._manager.load_settings(listed.name)
            n_ctx = settings.n_ctx or min(settings.n_ctx_train or MIN_DEFAULT_N_CTX, MAX_DEFAULT_N_CTX)
        return ModelDetails(
            model=listed,
            metadata=_metadata(header),
            tensors=tuple(TensorFacts(each.name, each.shape, each.type) for each in header.tensors),
            n_embd=header.integer(f"{header.text('general.architecture')}.embedding_length") or 0,
            n_ctx=n_ctx,
            variant=await asyncio.to_thread(self._library.variant, name),
        )

    async def pull(self, name: str) -> AsyncGenerator[PullStep]:
        """Download a model from the hub; the last step is done. Closing it stops the transfer and keeps what came."""
        plan = await self._library.plan(name, None)
        files = tuple(PulledFile(file.path, file.size_bytes, file.sha256) for file in plan.files)
        received = 0
        async with closing(self._follow(name, plan)) as events:
            async for event in events:
                data, kind = event["data"], event["event"]
                if kind == "download_progress":
                    [progress] = data.values()
                    received = progress["done"]
                yield PullStep(
                    plan.name, files, received, note=data.get("message"), done=kind == "download_finished"
                )

    async def add_variant(self, variant: Variant) -> None:
        await asyncio.to_thread(self._library.add_variant, variant)

    async def has_upload(self, digest: str) -> bool:
        """Whether a model can be made of a file with this digest (`sha256:HEX`). Raises InvalidRequest."""
        return await asyncio.to_thread(self._library.blobs.path_of, digest_of(digest)) is not None

    async def receive_upload(self, digest: str, n_bytes: int, chunks: AsyncIterator[bytes]) -> None:
        """Keep a file for `make_model`. n_bytes: its announced size, 0 if unknown."""
        await self._library.blobs.receive(digest_of(digest), n_bytes, chunks)

    async def make_model(self, digest: str, name: str) -> str:
        """A model from an upload; returns its canonical name."""
        await asyncio.to_thread(self._library.check_variant_name, name)
        record = await asyncio.to_thread(self._library.blobs.make_model, digest_of(digest), name)
        logger.info("made %s of an upload", record.name)
        return record.name

    async def keep_adapter(self, digest: str, variant: str, base: str) -> str:
        """See ModelLibrary.keep_adapter; returns the digest as variants have it."""
        sha256 = digest_of(digest)
        await asyncio.to_thread(self._library.keep_adapter, sha256, variant, base)
        return sha256

    async def calibration(self, name: str | None) -> tuple[str, Calibration | None]:
        return await asyncio.to_thread(self._library.calibration, name)

    async def keep_calibration(self, name: str | None, calibration: Calibration | None) -> str:
        return await asyncio.to_thread(self._library.keep_calibration, name, calibration)

    async def delete(self, name: str) -> None:
        """Delete a variant, or a model that has none. Raises ModelNotFound, InvalidRequest, ModelInUse, StoreError."""
        if await asyncio.to_thread(self._library.variant, name) is not None:
            base = await asyncio.to_thread(self._library.remove_variant, name)
            logger.info("deleted %s", name)
            if base is None:
                return
            name = base
        await asyncio.to_thread(self._library.check_removable, name)  # a rejected deletion unloads nothing
        async with self._manager.removing(name) as source:
            removed = await asyncio.to_thread(self._library.remove, source.name)
        logger.info("deleted %s", removed.name)


def _metadata(header: GgufHeader) -> dict[str, MetadataValue]:
    return {
        key: list(value.items) if isinstance(value, ArrayValue) else value
        for key, value in header.metadata.items()
    }

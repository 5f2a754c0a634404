"""The models on disk, for dialects that show and manage them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Protocol

from jan_serve.core.calibration import Calibration
from jan_serve.core.models.listed_model import ListedModel
from jan_serve.core.models.model_details import ModelDetails
from jan_serve.core.models.variant import Variant
from jan_serve.core.pull_step import PullStep
from jan_serve.errors import ModelNotFound


class ModelStore(Protocol):
    """The part of management that dialects, which never import it, may use. No method blocks the event loop."""

    async def models(self) -> Sequence[ListedModel]:
        """All of them, within milliseconds; never waits for a load."""
        ...

    async def unknown(self, name: str) -> ModelNotFound:
        """The error for a name that no list has, with a remedy."""
        ...

    async def details(self, name: str) -> ModelDetails:
        """Reads the header. Raises ModelNotFound, InvalidRequest, InvalidModel."""
        ...

    def pull(self, name: str) -> AsyncGenerator[PullStep]:
        """Download a model from the hub; the last step is done. Closing it stops the transfer and keeps what came.

        Raises InvalidRequest, and as ModelLibrary.plan and ModelLibrary.pull.
        """
        ...

    async def add_variant(self, variant: Variant) -> None:
        """Add or replace a variant. Raises InvalidRequest if a model has its name, StoreError."""
        ...

    async def has_upload(self, digest: str) -> bool:
        """Whether a model can be made of a file with this digest (`sha256:HEX`). Raises InvalidRequest."""
        ...

    async def receive_upload(self, digest: str, n_bytes: int, chunks: AsyncIterator[bytes]) -> None:
        """Keep a file for `make_model`. n_bytes: its announced size, 0 if unknown.

        Raises InvalidRequest for another digest, InsufficientStorage, StoreError.
        """
        ...

    async def make_model(self, digest: str, name: str) -> str:
        """A model from an upload; returns its canonical name. Raises InvalidRequest, InvalidModel, StoreError."""
        ...

    async def keep_adapter(self, digest: str, variant: str, base: str) -> str:
        """Keep an upload as the LoRA adapter of a variant of the model `base`; returns the digest as variants have it.

        Raises InvalidRequest, ModelNotFound, InvalidModel for a file that does not fit the model, StoreError.
        """
        ...

    async def calibration(self, name: str | None) -> tuple[str, Calibration | None]:
        """The canonical name of a model, and its calibration. None is the default model. Raises ModelNotFound."""
        ...

    async def keep_calibration(self, name: str | None, calibration: Calibration | None) -> str:
        """Replace or (None) delete a model's calibration; returns its canonical name.

        Raises ModelNotFound, StoreError.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a variant, or a model that has none. Raises ModelNotFound, InvalidRequest, ModelInUse, StoreError."""
        ...

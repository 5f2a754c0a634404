"""Models as lists show them, what a loaded one reports, and the state of those that were requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.placement import DeviceShare

MAX_ADAPTERS: Final = 32
"""Most adapters of a model, those of its variants included."""


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and what distinguishes its loads.

    name: canonical; clients see it. path: absolute. revision: changes with the file and with the load options; a loaded
    model whose source has another revision is reloaded. projector: file through which it sees or hears.
    """

    name: str
    path: str
    revision: tuple[int, ...] = ()
    projector: str | None = None


class HeaderFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts from a GGUF header, kept so that a list of models reads no headers.

    thinks: its chat template writes thoughts; None if nobody looked. fills_gaps: it has tokens for text in the middle.
    n_embd: length of its embeddings; None in records of earlier versions.
    """

    architecture: str
    title: str | None = None
    n_ctx_train: int | None = None
    n_parameters: int = 0
    quantisation: str | None = None
    has_chat_template: bool = False
    thinks: bool | None = None
    fills_gaps: bool = False
    n_embd: int | None = None
    pooling: str | None = None

    @property
    def writes_text(self) -> bool:
        """It pools nothing, so that it is not for embeddings or scores alone."""
        return self.pooling in (None, "none")

    @property
    def is_base(self) -> bool:
        """It continues text: it has no chat template, with which it could chat."""
        return self.writes_text and not self.has_chat_template


class ListedModel(msgspec.Struct, frozen=True, cache_hash=True):
    """A model on this machine. size_bytes: all its files. source: `hub`, `ollama` …, `folder`, `built in`, `--model`.

    adapters: names of the LoRA adapters that it is loaded with. modified_at: seconds since 1970. facts: None if the
    header was not read yet, or cannot be read, for the reason in `problem`. sha256: of the first file, if recorded.
    modalities: what it reads beside text (vision, audio).
    """

    name: str
    aliases: tuple[str, ...]
    adapters: tuple[str, ...]
    source: str
    source_name: str
    size_bytes: int
    modified_at: int
    can_remove: bool
    facts: HeaderFacts | None
    problem: str | None
    sha256: str | None = None
    modalities: tuple[str, ...] = ()


class VariantMessage(msgspec.Struct, frozen=True):
    """A turn that precedes every conversation."""

    role: str
    content: str


class Variant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """base: canonical name of the model. created_at: seconds since 1970.

    system: of chats that have no system message. template: Jinja source that replaces the model's. defaults: by fields
    of SamplingParams and StopConditions. parameters: the same as they were sent, to show. adapter: SHA-256 of its LoRA
    adapter, an upload that the store keeps. version: of this record.
    """

    name: str
    base: str
    created_at: float
    system: str | None = None
    template: str | None = None
    messages: tuple[VariantMessage, ...] = ()
    defaults: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    license: str | None = None
    adapter: str | None = None
    version: int = 1


MetadataValue = str | int | float | bool | Sequence[str | int | float | bool]


class TensorFacts(msgspec.Struct, frozen=True):
    """shape: innermost dimension first. type: ggml's name."""

    name: str
    shape: tuple[int, ...]
    type: str


class ModelDetails(msgspec.Struct, frozen=True):
    """metadata: of the GGUF file; empty lists for arrays of more than 256 elements.

    n_ctx: tokens of context that a load gives, as far as that is known before. variant: the one that was asked for.
    """

    model: ListedModel
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorFacts, ...]
    n_embd: int
    n_ctx: int
    variant: Variant | None = None

    @property
    def templates(self) -> dict[str, str]:
        """Chat templates by name, as in ModelFacts.chat_templates."""
        prefix = "tokenizer.chat_template"
        found: dict[str, str] = {}
        for key, value in self.metadata.items():
            if key.startswith(prefix) and isinstance(value, str):
                found[key[len(prefix) + 1 :] or "default"] = value
        return found


class PulledFile(msgspec.Struct, frozen=True):
    """sha256: as the hub lists it."""

    path: str
    size_bytes: int
    sha256: str


class PullStep(msgspec.Struct, frozen=True):
    """files: of the model, in order of transfer. received: bytes of all of them. note: for people, if any.

    done: all files are verified and the model can be used. name: of the model, canonical.
    """

    name: str
    files: tuple[PulledFile, ...]
    received: int
    note: str | None = None
    done: bool = False


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A ggml device: `kind` as ggml names it (cpu, gpu, igpu, accel), or rpc; memory in bytes. id: of the hardware."""

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int
    id: str = ""


class SpecialToken(msgspec.Struct, frozen=True):
    """A token with a role, and its text."""

    id: int
    text: str


class AdapterFacts(msgspec.Struct, frozen=True):
    """A loaded LoRA adapter: its name, and the scale of requests that say none."""

    name: str
    scale: float


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    """Facts that are known only after the load, which they end. Sizes in bytes, lengths in tokens.

    special_tokens: by role (bos, eos, eot, sep, nl, pad, mask, and fim_ with pre, suf, mid, pad, rep, sep).
    chat_templates: by name; "default" is the GGUF's own. pooling: how embeddings are pooled.
    score_labels: names of the outputs of a model that scores (rank pooling), as far as it names them.
    is_embedding_model: only embeddings (and scores for rank pooling) can be asked of it.
    modalities: what it reads beside text (vision, audio). audio_rate: of its sound, in samples a second; 0 if it hears
    none. projector_fault: why its projector cannot be used; empty if it can, or if there is none.
    bytes_per_token: weights that each token reads; 0 if unknown.
    weights: a digest of samples of its files, the projector's too; empty if they cannot be read.
    grows_to: the longest context that a long prompt may make of it; 0 if it does not grow.
    """

    description: str
    architecture: str
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    n_params: int
    size_bytes: int
    parallel: int
    threads: int
    n_gpu_layers: int
    n_layer: int
    device: str
    devices: tuple[DeviceInfo, ...]
    pooling: str
    is_embedding_model: bool
    is_recurrent: bool
    special_tokens: dict[str, SpecialToken]
    eog_token_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    chat_templates: dict[str, str]
    metadata: dict[str, str]
    kv_bytes: int = 0
    bytes_per_token: int = 0
    load_seconds: float = 0.0
    adapters: tuple[AdapterFacts, ...] = ()
    score_labels: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ()
    audio_rate: int = 0
    projector_fault: str = ""
    placement: tuple[DeviceShare, ...] = ()
    placement_warning: str = ""
    weights: str = ""
    grows_to: int = 0

    @property
    def longest_ctx(self) -> int:
        """Tokens that a prompt and its answer may have, as far as memory allows."""
        return max(self.n_ctx, self.grows_to)

    def special_text(self, role: str) -> str:
        """The text of a special token; empty if the model has none of this role."""
        token = self.special_tokens.get(role)
        return token.text if token is not None else ""


ModelState = Literal["unloaded", "loading", "ready", "stopping", "restarting", "failed"]


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was requested since the front started.

    leases: requests that hold it; waiting: requests that wait for it. load_fraction: 0 to 1, while loading.
    restarting: it crashed; the next request after the back-off restarts it. failed: it crashed too often.
    reason: why it is not loaded, safe to show. retry_after_s: until it may be restarted.
    stats: of the last pulse; their totals start at 0 with every load. The totals here count since the front started.
    taken_bytes: of memory, estimated while it loads. ttl_left_s: until it is unloaded if idle; None is never.
    modalities: of the last load, also after it. lost_devices: accelerators of an earlier load that the last one did not
    find.
    """

    name: str
    path: str
    state: ModelState
    pid: int | None = None
    leases: int = 0
    waiting: int = 0
    load_fraction: float = 0.0
    facts: ModelFacts | None = None
    modalities: tuple[str, ...] = ()
    stats: EngineStats = EngineStats()
    loads_total: int = 0
    crashes_total: int = 0
    stalls_total: int = 0
    retries_total: int = 0
    reason: str | None = None
    retry_after_s: float | None = None
    taken_bytes: int = 0
    ttl_left_s: float | None = None
    pinned: bool = False
    group: str | None = None
    lost_devices: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"


class ManagerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All models that were requested. draining: new requests are rejected."""

    draining: bool
    models: tuple[ModelStatus, ...]

"""Facts about a loaded model, which its worker reports once it is ready."""

from __future__ import annotations

import msgspec

from jan_serve.core.models.placement import DeviceShare


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


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that are known only after the load. Sizes in bytes, lengths in tokens.

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

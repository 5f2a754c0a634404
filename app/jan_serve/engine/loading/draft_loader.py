"""Loads what drafts tokens: a draft model, or the model's own head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from jan_serve.core.placement import LlamaPlacement
from jan_serve.engine.drafting.draft_model import DraftModel, check_vocabularies
from jan_serve.engine.drafting.next_token_head import NextTokenHead
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.loading.load_trial import compute_a_token
from jan_serve.errors import SettingsError
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.device_plan import ALL_LAYERS
from jan_serve.placement.workload import HEAD_BATCH, wants_head

MakeContext = Callable[[LlamaModel, EngineSettings, LlamaContext | None], LlamaContext]
"""Makes a context of this model as long as the large one's; with a context, one of the head of that context's model."""


def load_drafting(
    settings: EngineSettings,
    context: LlamaContext,
    parallel: int,
    device: str | None,
    make_context: MakeContext,
) -> DraftModel | None:
    """What the settings name; otherwise the head, if it is wanted. Blocks.

    device: of this machine, for a draft model. Raises InvalidModel, InsufficientMemory, SettingsError.
    """
    if settings.draft_path is not None:
        return _load_model(settings, settings.draft_path, context, parallel, device, make_context)
    model = context.model
    # Several heads take turns, each with states of the one before.
    if not wants_head(settings) or model.n_heads_ahead != 1:
        return None
    if model.is_recurrent and not context.max_rollback:
        return None
    own = msgspec.structs.replace(settings, n_batch=HEAD_BATCH, n_ubatch=HEAD_BATCH)
    return NextTokenHead(make_context(model, own, context), context, parallel)


def _load_model(
    settings: EngineSettings,
    path: str,
    context: LlamaContext,
    parallel: int,
    device: str | None,
    make_context: MakeContext,
) -> DraftModel:
    name = Path(path).name
    model = LlamaModel(
        path,
        placement=LlamaPlacement(ALL_LAYERS, (device,)) if device is not None else None,
        use_mmap=settings.use_mmap,
        use_mlock=settings.use_mlock,
        use_repack=settings.use_repack,
    )
    if model.is_recurrent:
        raise SettingsError(f"draft_model: {name} has recurrent layers, which cannot drop a rejected draft")
    check_vocabularies(context.model.vocab, model.vocab, name)
    own = make_context(model, settings, None)
    compute_a_token(own)
    return DraftModel(own, parallel, context.n_vocab)

"""This module makes the tiers of a loaded model's prompt states, and says what identifies the model in its states.

That is a digest of the weights, the RoPE factors in use, and the settings that the bytes of a state depend on.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_files import StateFiles, sampled_digest, state_key
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.ipc.messages import LoadModel

_PART = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf\Z")


def model_parts(path: Path) -> tuple[Path, ...]:
    """All files of a model, from the path of its first part (numbered as by llama.cpp's `gguf-split`)."""
    match = _PART.match(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    return tuple(
        path.with_name(f"{match['stem']}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)
    )


def model_files(load: LoadModel) -> list[Path]:
    """All files from which a model is computed, but for adapters."""
    files = [*model_parts(Path(load.path))]
    return files if load.settings.projector is None else [*files, Path(load.settings.projector)]


def weights_of(load: LoadModel) -> str:
    """The name of a load's weights; see `ModelFacts.weights`. Empty if a file cannot be read."""
    adapters = [Path(adapter.path) for adapter in load.settings.adapters]
    try:
        return sampled_digest([*model_files(load), *adapters])
    except OSError as error:
        logger.warning("the files of the model cannot be told from others: %s", error)
        return ""


def digest_files(paths: Sequence[Path]) -> str:
    """SHA-256 over the files, in hex: equal for equal files, whatever their path.

    Reads all of them, which takes seconds for large models. Raises OSError.
    """
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def rope_factors(metadata: Mapping[str, str], n_ctx: int) -> str:
    """Which RoPE factors a context of this length uses: "short", "long", or "" if its length does not decide.

    As llama_model::get_rope_factors. Few models whose header names an original length lack such factors (those with
    YaRN): their states are told apart needlessly.
    """
    architecture = metadata.get("general.architecture", "")
    original = metadata.get(f"{architecture}.rope.scaling.original_context_length", "")
    if not original.isdecimal():
        return ""
    return "long" if n_ctx > int(original) else "short"


logger = logging.getLogger(__name__)

_MAX_CACHE_RAM = 2 * 2**30
_MAX_CACHE_DISK = 8 * 2**30


def make_states(request: LoadModel, context: LlamaContext, longest: int) -> StateCache:
    """The tiers below the KV cache, sized by the settings or the machine; without files that cannot be made.

    longest: tokens that the context may hold.
    """
    settings, model = request.settings, context.model
    ram = settings.cache_ram_bytes
    if ram is None:
        ram = min(_MAX_CACHE_RAM, psutil.virtual_memory().total // 16)
    if settings.cache_ram_most is not None:
        ram = min(ram, settings.cache_ram_most)
    disk = settings.cache_disk_bytes
    files = None
    if settings.cache_dir is not None and disk != 0:
        root = Path(settings.cache_dir)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if disk is None:
                disk = min(_MAX_CACHE_DISK, psutil.disk_usage(str(root)).free // 10)
            factors = rope_factors(model.metadata(), context.n_ctx)
            key = state_files_key(request, factors)
            files = StateFiles(root, key, disk, max_tokens=longest)
        except OSError as error:
            logger.warning("prompt states are not saved to disk: %s", error)
    # A state with sliding windows holds only what the end of its sequence attends to: it is usable as a whole only.
    return StateCache(ram, files, whole_only=model.is_recurrent or model.n_swa > 0)


def state_files_key(request: LoadModel, factors: str) -> str:
    """Identifies everything but the tokens that the bytes of a state depend on. factors: see `rope_factors`."""
    settings = request.settings
    layout = [settings.type_k, settings.type_v, settings.flash_attn, str(lib.LLAMA_STATE_SEQ_VERSION)]
    layout += ["deterministic"] * settings.deterministic
    return state_key(model_files(request), backend.version(), *layout, *filter(None, [factors]))

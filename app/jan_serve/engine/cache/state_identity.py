"""What identifies a model in the states of its sequences: its weights, and the settings that their bytes depend on."""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jan_serve.core.split_names import PartName
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.ipc.messages import LoadModel

logger = logging.getLogger(__name__)

_SAMPLES, _SAMPLE_BYTES = 64, 64 * 1024

_VALUES = "2"
"""Another number for each change of what kernels compute, so that their values do not meet older ones in one answer."""


def state_key(model: Iterable[Path], *layout: str) -> str:
    """A folder name for everything that a state depends on: the weights, and `layout` (KV types, llama.cpp build, …).
    Digests size, modification time and at most 4 MiB of each file: the whole of a small one, sampled blocks of others.
    Raises OSError."""
    files = [*model]
    times = (str(path.stat().st_mtime_ns) for path in files)
    return sampled_digest(files, *layout, *times)


def sampled_digest(files: Iterable[Path], *texts: str) -> str:
    """A digest as `state_key`, without the times: equal for equal files on all machines, in 32 hexadecimal digits.
    Raises OSError."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode() + b"\0")
    for path in files:
        size = path.stat().st_size
        digest.update(struct.pack("<Q", size))
        with path.open("rb") as file:
            if size <= _SAMPLES * _SAMPLE_BYTES:
                digest.update(file.read())
                continue
            for number in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def model_parts(path: Path) -> tuple[Path, ...]:
    """All files of a model, from the path of its first part."""
    part = PartName.parse(path.name)
    return (path,) if part is None else tuple(path.with_name(name) for name in part.all_files())


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
    """SHA-256 over the files, in hex: equal for equal files, whatever their path. Reads all of them, which takes
    seconds for large models. Raises OSError."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def rope_factors(metadata: Mapping[str, str], n_ctx: int) -> str:
    """Which RoPE factors a context of this length uses: "short", "long", or "" if its length does not decide.

    As llama_model::get_rope_factors. Few models whose header names an original length lack such factors (those with
    YaRN): their states are told apart needlessly."""
    architecture = metadata.get("general.architecture", "")
    original = metadata.get(f"{architecture}.rope.scaling.original_context_length", "")
    if not original.isdecimal():
        return ""
    return "long" if n_ctx > int(original) else "short"


def state_files_key(request: LoadModel, factors: str) -> str:
    """Identifies everything but the tokens that the bytes of a state depend on. factors: see `rope_factors`."""
    settings = request.settings
    layout = [settings.type_k, settings.type_v, settings.flash_attn, str(lib.LLAMA_STATE_SEQ_VERSION)]
    layout += [_VALUES, *["deterministic"] * settings.deterministic]
    return state_key(model_files(request), backend.version(), *layout, *filter(None, [factors]))

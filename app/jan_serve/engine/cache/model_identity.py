"""What identifies a model in states of its sequences: a digest of its weights, and the RoPE factors in use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

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

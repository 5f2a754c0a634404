"""What llama.cpp's log says about a context that it could not create, as an error of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from jan_serve.errors import InsufficientMemory, JanServeError, ModelFailed, SettingsError

_MEMORY: Final = re.compile(
    r"alloc|out of memory|insufficient memory|failed to reserve initial output|failed to create ggml context",
    re.IGNORECASE,
)
_FLASH: Final = re.compile(r"quantized V cache .*(?:requires|requested)", re.IGNORECASE)
_BLOCK: Final = re.compile(
    r"([KV]) cache type (\S+) with block size (\d+) does not divide n_embd_head_[kv]=(\d+)"
)
_MIXED: Final = re.compile(r"does not support different K .* and V .* cache types")
_FUNCTION: Final = re.compile(r"^\w+: (?:failed to initialize the context: )?")


def context_error(
    errors: Sequence[str], *, n_ctx: int, type_k: str, type_v: str, flash_attn: str
) -> JanServeError:
    """errors: the lines of the log at level error. A lack of memory is called so only if llama.cpp says it."""
    text = "\n".join(errors)
    if _FLASH.search(text):
        return SettingsError(
            f"type_v, flash_attn: values of type {type_v} require flash attention, and flash_attn is {flash_attn}"
            + ("" if flash_attn == "off" else ", which llama.cpp does not have for this model here")
            + ": use type_v = f16"
        )
    if found := _BLOCK.search(text):
        name, block, width = f"type_{found[1].lower()}", found[3], found[4]
        return SettingsError(
            f"{name}: {found[2]} has blocks of {block} elements, and this model's heads have {width}: use f16"
        )
    if _MIXED.search(text):
        return SettingsError(
            f"type_k, type_v: this model has keys and values of one type, not {type_k} and {type_v}"
        )
    what = f"llama.cpp could not create a context of {n_ctx} tokens"
    if _MEMORY.search(text):
        return InsufficientMemory(
            f"{what} (type_k {type_k}, type_v {type_v}): not enough memory", retry_after=None
        )
    reason = _FUNCTION.sub("", errors[-1]).rstrip(".") if errors else "it gives no reason"
    return ModelFailed(
        f"{what} (type_k {type_k}, type_v {type_v}, flash_attn {flash_attn}): {reason}", retry_after=None
    )

"""What libmtmd does not say of a projector's file: the longest sound that its encoder has positions for."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from jan_serve.engine.llama.bindings import ggml_function

_TYPE_KEYS: Final = (b"clip.audio.projector_type", b"clip.projector_type")
_CONFORMER: Final = b"lfm2a"
_POSITIONS: Final = b"a.position_embd.weight"
_SAMPLES_PER_POSITION: Final = 320
"""Two frames of 10 ms, at the 16,000 samples a second of this encoder, which asserts as many rows of its table."""
_STRING: Final = 8  # enum gguf_type
_pointer_to: Any = ctypes.POINTER


class _Params(ctypes.Structure):
    """Layout of gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", _pointer_to(ctypes.c_void_p)))


def longest_sound(path: str) -> int | None:
    """Samples. None where libmtmd reads a sound in pieces. Blocks for reading the header."""
    tensors = ctypes.c_void_p()
    init = ggml_function("gguf_init_from_file", ctypes.c_void_p, [ctypes.c_char_p, _Params])
    file = init(path.encode("utf-8"), _Params(True, ctypes.pointer(tensors)))
    if not file:
        return None
    try:
        if _CONFORMER not in (_text(file, key) for key in _TYPE_KEYS):
            return None
        get = ggml_function("ggml_get_tensor", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p])
        table = get(tensors, _POSITIONS)
        if not table:
            return None
        return _SAMPLES_PER_POSITION * int(
            ggml_function("ggml_nrows", ctypes.c_int64, [ctypes.c_void_p])(table)
        )
    finally:
        ggml_function("gguf_free", None, [ctypes.c_void_p])(file)
        ggml_function("ggml_free", None, [ctypes.c_void_p])(tensors)


def _text(file: int, key: bytes) -> bytes | None:
    number = ggml_function("gguf_find_key", ctypes.c_int64, [ctypes.c_void_p, ctypes.c_char_p])(file, key)
    of_key = [ctypes.c_void_p, ctypes.c_int64]
    if number < 0 or ggml_function("gguf_get_kv_type", ctypes.c_int, of_key)(file, number) != _STRING:
        return None
    text: bytes = ggml_function("gguf_get_val_str", ctypes.c_char_p, of_key)(file, number)
    return text

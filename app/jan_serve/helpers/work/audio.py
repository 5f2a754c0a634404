"""Sound to mono samples with miniaudio, whose decoders and resampler are those of llama.cpp's own helper."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isfinite
from typing import Any, cast

import miniaudio as _miniaudio  # pyright: ignore[reportMissingTypeStubs]

from jan_serve.audio_files import MAX_AMPLITUDE, MAX_SECONDS, AudioHeader
from jan_serve.errors import InvalidAudio

_lib: Any = _miniaudio
_FRAMES_AT_ONCE = 1 << 16


def decoded(data: bytes, header: AudioHeader, rate: int) -> bytes:
    """The whole sound: float32 of this machine's byte order, channels mixed to one, `rate` samples a second. Raises
    InvalidAudio for a damaged file or one beyond the limits; MemoryError."""
    samples = bytearray()
    try:
        stream: Iterable[object] = _lib.stream_memory(
            data, _lib.SampleFormat.FLOAT32, nchannels=1, sample_rate=rate, frames_to_read=_FRAMES_AT_ONCE
        )
        for each in stream:
            part = cast("array[float]", each)
            # Not a number and infinity make any sum one of them.
            if not isfinite(sum(part)) or (part and max(max(part), -min(part)) > MAX_AMPLITUDE):
                raise InvalidAudio(f"the {header.format} audio has samples that are no sound")
            samples += part.tobytes()
            if len(samples) > 4 * rate * (MAX_SECONDS + 1):
                raise InvalidAudio(f"the audio lasts longer than {MAX_SECONDS} s, the limit")
    except _lib.MiniaudioError as error:
        raise InvalidAudio(f"the {header.format} audio is damaged") from error
    if not samples:
        raise InvalidAudio(f"the {header.format} audio is damaged: it has no samples")
    return bytes(samples)

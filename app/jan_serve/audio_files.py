"""Sound as far as its headers say it without being decoded: format, rate, channels, length and limits. Bounded cost.

Sources: Microsoft's WAVEFORMATEX and WAVEFORMATEXTENSIBLE, FLAC (RFC 9639), MPEG audio layer III (ISO 11172-3,
13818-3), ID3v2.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import ceil
from typing import Final, Literal, NamedTuple

from jan_serve.errors import InvalidAudio

MAX_FILE_BYTES: Final = 25 << 20  # size of one sound as it was sent. OpenAI's limit is the same.

MAX_SECONDS: Final = 600
"""Length of one sound. Models take up to 750 tokens for half a minute, so longer ones would fill their contexts."""

MAX_CHANNELS: Final = 8  # channels of one sound; they are mixed to one

RATES: Final = (4_000, 192_000)  # the least and the largest number of samples a second

MAX_SOUNDS: Final = 8

MAX_AMPLITUDE: Final = 1_000.0
"""Highest sample in floating point, whose full scale is 1: larger ones overflow in the encoder."""


AudioFormat = Literal["WAV", "MP3", "FLAC"]

_MAX_CHUNKS: Final = 256
_EXTENSIBLE: Final = 0xFFFE
_WAV_ENCODINGS: Final = frozenset({1, 3, 6, 7})
"""Format tags of samples of a fixed size: PCM, floating point, A-law, mu-law."""
_UNKNOWN_LENGTH: Final = 0x7FFF_F000
"""Lengths from here on, and 0, are those of programs that write into a pipe."""

_LAYER_3: Final = 1
_MP3_KBITS: Final = {
    True: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""kbit/s for MPEG 1 (True) and others. The first one means a rate of the encoder's own."""
_MP3_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""Samples a second by version: MPEG 1, 2, 2.5."""


class AudioHeader(NamedTuple):
    """rate: samples a second. frames: samples of each channel; of an MP3 file as its frames have them."""

    format: AudioFormat
    rate: int
    channels: int
    frames: int

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    def frames_at(self, rate: int) -> int:
        """How many samples it has at another rate; the decoder's may differ by a few."""
        return ceil(self.frames * rate / self.rate)


def checked_header(data: bytes) -> AudioHeader:
    """The header of a sound within the limits. Raises InvalidAudio."""
    if not data:
        raise InvalidAudio("the audio is empty")
    if len(data) > MAX_FILE_BYTES:
        raise InvalidAudio(f"the audio has {len(data)} bytes; the limit is {MAX_FILE_BYTES}")
    try:
        header = read_header(data)
    except (struct.error, IndexError):
        raise InvalidAudio("the audio ends within its header") from None
    if not RATES[0] <= header.rate <= RATES[1]:
        raise InvalidAudio(
            f"the audio has {header.rate} samples a second; from {RATES[0]} to {RATES[1]} can be read"
        )
    if not 1 <= header.channels <= MAX_CHANNELS:
        raise InvalidAudio(f"the audio has {header.channels} channels; the limit is {MAX_CHANNELS}")
    if header.frames < 1:
        raise InvalidAudio("the audio has no samples")
    if header.seconds > MAX_SECONDS:
        raise InvalidAudio(f"the audio lasts {header.seconds:.0f} s; the limit is {MAX_SECONDS} s")
    return header


def read_header(data: bytes) -> AudioHeader:
    """Raises InvalidAudio for other formats; struct.error or IndexError where the header is cut off."""
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return _wav(data)
    start = _after_id3(data)
    if data.startswith(b"fLaC", start):
        return _flac(data, start)
    if start or data.startswith(b"\xff"):
        return _mp3(data, start)
    raise InvalidAudio("not WAV, MP3 or FLAC audio")


def _wav(data: bytes) -> AudioHeader:
    rate = channels = size = 0
    position = 12
    for _ in range(_MAX_CHUNKS):
        kind, length = struct.unpack_from("<4sI", data, position)
        position += 8
        if kind == b"fmt ":
            encoding, channels, rate, _, size, bits = struct.unpack_from("<HHIIHH", data, position)
            if encoding == _EXTENSIBLE:
                (encoding,) = struct.unpack_from("<H", data, position + 24)
            if encoding not in _WAV_ENCODINGS or not channels or size < channels:
                raise InvalidAudio(f"the WAV audio has an encoding ({encoding}) other than PCM")
            if size != channels * ceil(bits / 8):  # else the decoder finds another length
                raise InvalidAudio(
                    f"the WAV audio has {channels} channels of {bits} bits, and {size} bytes for all of them"
                )
        elif kind == b"data":
            if not size:
                break
            rest = len(data) - position
            if not 0 < length < _UNKNOWN_LENGTH:
                length = rest
            frames = length // size
            if length > rest and frames <= MAX_SECONDS * rate:
                raise InvalidAudio(f"the WAV audio has {rest} bytes of samples; its header says {length}")
            return AudioHeader("WAV", rate, channels, frames)
        position += length + (length & 1)
    raise InvalidAudio("the WAV audio has no header")


def _flac(data: bytes, start: int) -> AudioHeader:
    if data[start + 4] & 0x7F:
        raise InvalidAudio("the FLAC audio has no header")
    # 20 bits of rate, 3 of channels, 5 of sample size, 36 of length
    (bits,) = struct.unpack_from(">Q", data, start + 18)
    frames = bits & ((1 << 36) - 1)
    if not frames:
        raise InvalidAudio("the FLAC audio does not say how long it is")
    return AudioHeader("FLAC", bits >> 44, (bits >> 41 & 7) + 1, frames)


def _after_id3(data: bytes) -> int:
    """The length of an ID3v2 tag at the start; 0 without one."""
    if not data.startswith(b"ID3"):
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size + (10 if data[5] & 0x10 else 0)


def _mp3(data: bytes, start: int) -> AudioHeader:
    """The length is that of all frames, up to a little more than the limit."""
    rate = channels = frames = count = 0
    for each_rate, each_channels, samples in _mp3_frames(data, start):
        count += 1
        rate, channels = rate or each_rate, channels or each_channels
        frames += samples
        if frames > (MAX_SECONDS + 1) * rate:
            break
    if count < 2:  # two bytes of any file can look like one frame
        raise InvalidAudio("not WAV, MP3 or FLAC audio")
    return AudioHeader("MP3", rate, channels, frames)


def _mp3_frames(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """Rate, channels and samples of the frames that follow each other."""
    while position + 4 <= len(data):
        (bits,) = struct.unpack_from(">I", data, position)
        version, layer = bits >> 19 & 3, bits >> 17 & 3
        kbits, rate = bits >> 12 & 15, bits >> 10 & 3
        if bits >> 21 != 0x7FF or version == 1 or layer != _LAYER_3 or kbits in (0, 15) or rate == 3:
            return
        is_first = version == 3
        per_second = _MP3_RATES[version][rate]
        samples = 1152 if is_first else 576
        yield per_second, 1 if bits >> 6 & 3 == 3 else 2, samples
        position += samples // 8 * _MP3_KBITS[is_first][kbits] * 1000 // per_second + (bits >> 9 & 1)

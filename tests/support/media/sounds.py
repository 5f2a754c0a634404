"""Sounds for tests, as files."""

from __future__ import annotations

import array
import math
import struct

from jan_serve.core.messages import AudioPiece

RATE = 16_000


def tone(seconds: float = 1.0, hertz: float = 440.0, rate: int = RATE) -> list[float]:
    """Samples of a sine at half of the full scale."""
    return [math.sin(2 * math.pi * hertz * n / rate) / 2 for n in range(round(seconds * rate))]


def wav(
    samples: list[float] | None = None,
    *,
    rate: int = RATE,
    channels: int = 1,
    encoding: int = 1,
    claimed: int | None = None,
) -> bytes:
    """A WAV file: 16 bits, or floats of 32 (encoding 3). claimed: what the header says of the length in bytes."""
    samples = tone(rate=rate) if samples is None else samples
    if encoding == 3:
        data = array.array("f", samples).tobytes()
    else:
        data = array.array("h", [round(32767 * sample) for sample in samples]).tobytes()
    size = 4 if encoding == 3 else 2
    layout = struct.pack(
        "<HHIIHH", encoding, channels, rate, rate * size * channels, size * channels, 8 * size
    )
    body = b"WAVEfmt " + struct.pack("<I", 16) + layout
    body += b"data" + struct.pack("<I", len(data) if claimed is None else claimed) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def heard(hertz: float, seconds: float = 1.0) -> AudioPiece:
    """A sound as the worker gets it. The pitch is its digest."""
    samples = array.array("f", tone(seconds, hertz)).tobytes()
    return AudioPiece(digest=f"{hertz}-{seconds}", frames=len(samples) // 4, samples=samples)


def mp3(frames: int = 40, *, tag: bytes = b"") -> bytes:
    """Silence of MPEG 1 layer III: 44,100 samples a second, 128 kbit/s, stereo, 1152 samples a frame."""
    return tag + (b"\xff\xfb\x90\x00" + bytes(413)) * frames


def flac(samples: list[float] | None = None, *, claimed: int | None = None) -> bytes:
    """A FLAC file of 16 bits at RATE, with verbatim subframes of up to 4,096 samples (RFC 9639)."""
    values = [round(32767 * sample) for sample in (tone() if samples is None else samples)]
    total = len(values) if claimed is None else claimed
    bits = RATE << 44 | (16 - 1) << 36 | total
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + bits.to_bytes(8) + bytes(16)
    data = b"fLaC" + bytes([0x80]) + len(info).to_bytes(3) + info
    for number, start in enumerate(range(0, len(values), 4096)):
        block = values[start : start + 4096]
        # Fixed block size; its length follows in 16 bits; rate and sample size as in the file's header.
        head = b"\xff\xf8\x70\x08" + bytes([number]) + struct.pack(">H", len(block) - 1)
        frame = head + bytes([_crc(head, 8, 0x07)]) + b"\x02" + _big_endian(block)
        data += frame + _crc(frame, 16, 0x8005).to_bytes(2)
    return data


def _big_endian(values: list[int]) -> bytes:
    """16 bits each, the high byte first."""
    return struct.pack(f">{len(values)}h", *values)


def _crc(data: bytes, width: int, polynomial: int) -> int:
    found, top, mask = 0, 1 << width - 1, (1 << width) - 1
    for byte in data:
        found ^= byte << width - 8
        for _ in range(8):
            found = (found << 1 ^ (polynomial if found & top else 0)) & mask
    return found

"""Images and sound in a prompt, decoded."""

from __future__ import annotations

import msgspec


class ImagePiece(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """An image. width, height: in pixels, of `pixels`. digest: SHA-256 of the file that the client sent, in hex.

    pixels: RGB, 8 bits a channel, rows from the top. Empty: the image is only counted.
    """

    width: int
    height: int
    digest: str
    pixels: bytes = b""


class AudioPiece(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """Sound. samples: float32, mono, at the rate of the model's projector; frames: how many. digest: as of an image.

    Without samples, the sound is only counted.
    """

    digest: str
    frames: int = 0
    samples: bytes = b""


MediaPiece = ImagePiece | AudioPiece
PromptPiece = str | tuple[int, ...] | ImagePiece | AudioPiece
"""A part of a prompt: text, token ids, or what the model's projector reads."""

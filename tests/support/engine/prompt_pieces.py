"""Prompts of the fakes as text: an image is `[WIDTHxHEIGHT]`, sound is `[sound]`, and both count as that text."""

from __future__ import annotations

from jan_serve.core.messages import AudioPiece, ImagePiece, PromptPiece


def with_shown_media(prompt: tuple[PromptPiece, ...]) -> list[str | tuple[int, ...]]:
    """The texts and ids of a prompt, with texts in place of images and sound."""
    return [_shown(piece) for piece in prompt]


def _shown(piece: PromptPiece) -> str | tuple[int, ...]:
    match piece:
        case ImagePiece():
            return f"[{piece.width}x{piece.height}]"
        case AudioPiece():
            return "[sound]"
        case _:
            return piece

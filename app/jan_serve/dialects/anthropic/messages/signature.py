"""Signatures of thinking blocks, which clients send back unread. Pure.

A thought whose text the request omits travels in its signature. Signatures of other servers mean nothing here.
"""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.shared.packed_thoughts import packed_thought, unpacked_thought

SHOWN: Final = "jan-serve"
"""The signature of a thought that the answer shows: some clients drop thoughts without any."""


def signature_of(thought: str, *, shown: bool) -> str:
    return SHOWN if shown else packed_thought(thought)


def signed_thought(thinking: str, signature: str) -> str:
    """The text of a thinking block."""
    return thinking or unpacked_thought(signature) or ""

"""`POST /tokenize`, which llama-server and Text Generation Inference share: dispatch by the members of the body."""

from __future__ import annotations

from typing import Final

import msgspec

SHARED_PATH: Final = "/tokenize"
LLAMA_PATH: Final = "/llama-server/tokenize"
_ABSENT: Final = msgspec.Raw()


class _Members(msgspec.Struct, frozen=True):
    """The members that decide. Other members are not decoded."""

    inputs: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT


_members: Final = msgspec.json.Decoder(_Members).decode


def is_llama_body(body: bytes) -> bool:
    """Whether a body is llama-server's. False for anything but a JSON object."""
    try:
        members = _members(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return members.inputs is _ABSENT and members.content is not _ABSENT


def body_path(path: str, body: bytes) -> str:
    return LLAMA_PATH if path == SHARED_PATH and is_llama_body(body) else path

"""Frames of a helper process, and what made one run out of memory. Its life is in the tests of those who use one:
supervisor/test_template_renderer.py and supervisor/test_constraint_compiler.py."""

from __future__ import annotations

from types import ModuleType

import pytest

from jan_serve.errors import ProtocolError
from jan_serve.ipc import compiling, header_reading, helper, media_decoding, rendering
from jan_serve.ipc.helper import framed, ran_out_of_memory


@pytest.mark.parametrize("body", [b"", b"x", b"\0" * 300])
def test_a_frame_begins_with_its_length(body: bytes) -> None:
    frame = framed(body)
    assert int.from_bytes(frame[:4], "little") == len(body)
    assert frame[4:] == body


def test_a_frame_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "MAX_FRAME_BYTES", 10)
    assert framed(b"x" * 10)
    with pytest.raises(ProtocolError, match="11 bytes"):
        framed(b"x" * 11)


@pytest.mark.parametrize("module", [compiling, header_reading, media_decoding, rendering])
@pytest.mark.parametrize("body", [b'{"x":' + b"[" * 9_999, b"\x81\xa1x" + b"\x91" * 9_999, b"", b"\xa1\xff"])
def test_what_is_no_message_is_a_protocol_error(module: ModuleType, body: bytes) -> None:
    for decode in (module.decode_request, module.decode_reply):
        with pytest.raises(ProtocolError):
            decode(body)


def _chained(cause: Exception, *, explicit: bool) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            if explicit:
                raise ValueError("later") from error
            raise ValueError("later")  # noqa: B904  # the implicit context is what is tested
    except ValueError as error:
        return error


@pytest.mark.parametrize("explicit", [True, False])
def test_the_root_cause_counts(explicit: bool) -> None:
    assert ran_out_of_memory(MemoryError())
    assert ran_out_of_memory(_chained(MemoryError(), explicit=explicit))
    assert not ran_out_of_memory(_chained(KeyError("a"), explicit=explicit))

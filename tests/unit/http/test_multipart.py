"""Forms with files, as clients send them and as they should not."""

from __future__ import annotations

import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.http.multipart import FormField, form_fields

TYPE = "multipart/form-data; boundary=XX"


def part(head: str, data: bytes) -> bytes:
    return b"--XX\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + data + b"\r\n"


END = b"--XX--\r\n"
FILE = b"RIFF\r\n--X\r\n\r\n--\0\xff"
FORMS: dict[str, tuple[str, bytes, list[FormField]]] = {
    "a text and a file": (
        TYPE,
        part('name="model"', b"m")
        + part('name="file"; filename="a.wav"\r\nContent-Type: audio/wav', FILE)
        + END,
        [FormField("model", b"m"), FormField("file", FILE, "a.wav")],
    ),
    "curl's order and an unquoted name": (
        TYPE,
        part("filename=a; name=file", b"x") + END,
        [FormField("file", b"x", "a")],
    ),
    "a file's name that looks like a field's": (
        TYPE,
        part('filename="a; name=b"; name="file"', b"x") + END,
        [FormField("file", b"x", "a; name=b")],
    ),
    "a quoted boundary": (
        'multipart/form-data; charset=utf-8; boundary="XX"',
        part('name="a"', b"") + END,
        [FormField("a", b"")],
    ),
    "text before and after": (
        TYPE,
        b"preface\r\n" + part('name="a"', b"1") + END + b"more",
        [FormField("a", b"1")],
    ),
    "no fields": (TYPE, END, []),
    "a name in capitals": (
        "Multipart/Form-Data; BOUNDARY=XX",
        part('NAME="a"', b"1") + END,
        [FormField("a", b"1")],
    ),
}


@pytest.mark.parametrize(("content_type", "body", "want"), FORMS.values(), ids=FORMS)
def test_forms(content_type: str, body: bytes, want: list[FormField]) -> None:
    assert form_fields(content_type, body) == want


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "json": ("application/json", b"{}", "must be a form"),
    "no boundary": ("multipart/form-data", part('name="a"', b"1") + END, "must be a form"),
    "an empty body": (TYPE, b"", "no fields"),
    "another boundary": (TYPE, b"--YY\r\n\r\n--YY--", "no fields"),
    "cut off": (TYPE, part('name="a"', b"1"), "cut off"),
    "no end": (TYPE, part('name="a"', b"1") + b"--XX\r\n", "cut off"),
    "no name": (TYPE, part("x=1", b"1") + END, "no name"),
    "no blank line": (TYPE, b"--XX\r\nContent-Disposition: form-data; name=a\r\n" + END, "no name"),
    "too many": (TYPE, part('name="a"', b"1") * 101 + END, "more than 100"),
}


@pytest.mark.parametrize(("content_type", "body", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_form_is_refused(content_type: str, body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        form_fields(content_type, body)


def test_text_that_is_not_utf_8_names_its_field() -> None:
    with pytest.raises(InvalidRequest, match="model: not text") as caught:
        FormField("model", b"\xff").text()
    assert caught.value.param == "model"

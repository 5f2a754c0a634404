"""The text of PDFs, and what files that are no good ones are refused for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jan_serve.errors import InvalidDocument
from jan_serve.helpers.work import pdf
from jan_serve.helpers.work.pdf import MAX_PAGES, text_of
from tests.support.media import pdfs


def test_pages_are_below_their_numbers() -> None:
    found = text_of(pdfs.pdf("One (a) \\", "", "Three é"))
    assert found == "[page 1]\nOne (a) \\\n\n[page 3]\nThree é"


def test_an_empty_password_and_a_table_that_names_itself_are_read() -> None:
    assert text_of(pdfs.encrypted("")) == "[page 1]\nsecret words"
    assert text_of(pdfs.endless_updates()) == "[page 1]\nwords"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (lambda: pdfs.encrypted("x"), "encrypted"),
        (lambda: pdfs.pdf("", ""), r"no text on its pages \(2\)"),
        (lambda: pdfs.many_pages(MAX_PAGES + 1), f"{MAX_PAGES + 1} pages; the limit is {MAX_PAGES}"),
        (pdfs.endless_pages, "damaged"),
        (pdfs.endless_form, "no text"),
        (pdfs.deep, "damaged"),
        (pdfs.bomb, "unpacks to more"),
        (lambda: pdfs.pdf("a")[:200], "damaged"),
        (lambda: b"%PDF-1.7 and no more", "damaged"),
        (lambda: b"%PDF-1.7\n" + b"\xff\x00" * 5000, "damaged"),
    ],
)
def test_files_that_cannot_be_read(file: Callable[[], bytes], words: str) -> None:
    with pytest.raises(InvalidDocument, match=words):
        text_of(file())


def test_more_text_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_CHARACTERS", 99)
    assert len(text_of(pdfs.many_pages(1))) == 59
    with pytest.raises(InvalidDocument, match="more than 99 characters, the limit"):
        text_of(pdfs.many_pages(2))


def test_a_long_run_of_blanks_takes_no_time() -> None:
    started = time.process_time()
    text_of(pdfs.pdf("a" + " " * 60_000 + "b"))
    assert time.process_time() - started < 3


@pytest.mark.parametrize("at", range(10, len(pdfs.pdf("words")), 37))
def test_a_damaged_byte_is_an_error_of_the_file_or_nothing(at: int) -> None:
    file = bytearray(pdfs.pdf("words"))
    file[at : at + 4] = b"\xff[<("
    try:
        text_of(bytes(file))
    except InvalidDocument as error:
        assert error.message.startswith("the PDF ")

"""The text of a PDF with pypdf, page by page."""

from __future__ import annotations

import io
import logging
import re
from typing import Final

from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

from jan_serve.errors import InvalidDocument

# It logs each thing that is wrong with a file; files are not ours.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)

MAX_PAGES: Final = 2_000
MAX_CHARACTERS: Final = 4_000_000  # all pages together may have so many, about a million tokens

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_BLANKS: Final = re.compile(r"(?<![^\S\n])[^\S\n]+\n|\n{3,}")


def text_of(data: bytes) -> str:
    """The pages that have text, each below its number. Raises InvalidDocument, MemoryError."""
    try:
        return _text(data)
    except (InvalidDocument, MemoryError):
        raise
    except (DependencyError, FileNotDecryptedError) as error:
        raise InvalidDocument("the PDF is encrypted; save it without a password") from error
    except LimitReachedError as error:
        raise InvalidDocument("the PDF unpacks to more than one file may use") from error
    except Exception as error:  # pypdf has errors of its own, and any other for a file that is damaged enough
        if isinstance(error.__context__, MemoryError):
            raise MemoryError from None
        raise InvalidDocument(f"the PDF is damaged ({type(error).__name__})") from error


def _text(data: bytes) -> str:
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):  # many have rights, and an empty password
        raise InvalidDocument("the PDF is encrypted; save it without a password")
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise InvalidDocument(f"the PDF has {count} pages; the limit is {MAX_PAGES}")
    pages: list[str] = []
    left = MAX_CHARACTERS
    for number in range(count):
        text = _UNPRINTABLE.sub("", reader.pages[number].extract_text())
        text = _BLANKS.sub("\n", text).strip()
        left -= len(text)
        if left < 0:
            raise InvalidDocument(f"the PDF has more than {MAX_CHARACTERS} characters, the limit")
        if text:
            pages.append(f"[page {number + 1}]\n{text}")
    if not pages:
        raise InvalidDocument(
            f"the PDF has no text on its pages ({count}); if they are pictures, they can be sent as images"
        )
    return "\n\n".join(pages)

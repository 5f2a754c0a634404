"""PDF files for tests, written by hand: good ones, and ones that a reader must survive."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence

from pypdf import PdfReader, PdfWriter

_FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def stream(content: bytes, head: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), head, content)


def written(objects: Mapping[int, bytes], trailer: bytes = b"") -> bytes:
    """A file of these objects by number; 1 is the catalogue. trailer: more of its entries."""
    file = bytearray(b"%PDF-1.7\n")
    places: dict[int, int] = {}
    for number, content in objects.items():
        places[number] = len(file)
        file += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(file)
    size = max(objects) + 1
    file += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        file += b"%010d 00000 %s \n" % (places.get(number, 0), b"n" if number in places else b"f")
    file += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF" % (size, trailer, start)
    return bytes(file)


def shown(text: str) -> bytes:
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return b"BT /F 12 Tf 50 700 Td (%s) Tj ET" % escaped.encode("latin-1")


def pdf_of(contents: Sequence[bytes], resources: bytes = b"", filters: bytes = b"") -> bytes:
    """A page for each content stream."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(contents)))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        3: _FONT,
    }
    for number, content in enumerate(contents):
        page = 4 + 2 * number
        objects[page] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
            b" /Resources << /Font << /F 3 0 R >> %s >> >>" % (page + 1, resources)
        )
        objects[page + 1] = stream(content, filters)
    return written(objects)


def pdf(*pages: str) -> bytes:
    """A page for each text."""
    return pdf_of([shown(page) for page in pages])


def encrypted(password: str) -> bytes:
    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(pdf("secret words"))))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def bomb() -> bytes:
    """A content stream that decompresses, twice, to many gigabytes."""
    once = zlib.compress(b" " * (1 << 28), 1)
    return pdf_of([zlib.compress(once, 9)], filters=b"/Filter [/FlateDecode /FlateDecode]")


def endless_pages() -> bytes:
    """A tree of pages that contains itself."""
    tree = b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"
    return written({1: b"<< /Type /Catalog /Pages 2 0 R >>", 2: tree})


def endless_form() -> bytes:
    """A form that draws itself, twice."""
    form = stream(
        b"/X Do /X Do",
        b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 9 0 R >> >>",
    )
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        4: b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 5 0 R"
        b" /Resources << /XObject << /X 9 0 R >> >> >>",
        5: stream(b"/X Do"),
        9: form,
    }
    return written(objects)


def endless_updates() -> bytes:
    """A table of places that names itself as the one before."""
    file = pdf("words")
    start = file.rindex(b"xref\n0")
    return file.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev %d" % start)


def slow() -> bytes:
    """Millions of operators on one page."""
    return pdf_of([zlib.compress(b"BT /F 1 Tf (a) Tj ET " * 300_000, 1)], filters=b"/Filter /FlateDecode")


def deep() -> bytes:
    return written({1: b"<< /Type /Catalog /Pages " + b"[" * 100_000 + b"]" * 100_000 + b" >>"})


def many_pages(count: int) -> bytes:
    """So many pages, which are one object."""
    kids = b"4 0 R " * count
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        3: _FONT,
        4: b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /Font << /F 3 0 R >> >> >>",
        5: stream(shown("x" * 50)),
    }
    return written(objects)

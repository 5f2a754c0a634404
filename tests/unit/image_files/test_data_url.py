from __future__ import annotations

import base64

import pytest

from jan_serve.errors import InvalidImage
from jan_serve.image_files.data_url import image_bytes, is_remote

BYTES = bytes(range(256))
TEXT = base64.b64encode(BYTES).decode()
TAKEN = {
    "data URL": f"data:image/png;base64,{TEXT}",
    "another label": f"data:image/svg+xml;base64,{TEXT}",
    "no label": f"data:;base64,{TEXT}",
    "unknown bytes": f"data:application/octet-stream;base64,{TEXT}",
    "with a parameter": f"DATA:image/png;name=a.png;BASE64,{TEXT}",
    "bare": TEXT,
    "line ends": "\r\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76)) + "\n",
    "URL alphabet": base64.urlsafe_b64encode(BYTES).decode(),
    "no padding": TEXT.rstrip("="),
}


@pytest.mark.parametrize("url", TAKEN.values(), ids=TAKEN)
def test_bytes_of_data_urls_and_base64(url: str) -> None:
    assert image_bytes(url) == BYTES
    assert not is_remote(url)


REFUSED = {
    "words": ("not base64!", "not encoded as base64"),
    "beyond ascii": ("AAAé", "not encoded as base64"),
    "half a byte": ("AAAAA", "not encoded as base64"),
    "padding inside": ("AA==AAAA", "not encoded as base64"),
    "file": ("file:///etc/passwd", "nothing of `file:` is read"),
    "another scheme": ("ftp://host/a.png", "nothing of `ftp:` is read"),
    "a text": (f"data:text/html;base64,{TEXT}", "labelled text/html, not as an image"),
    "per cent": ("data:image/png,%89PNG", "must be encoded as base64"),
    "a space before it": (f" data:image/png;base64,{TEXT}", "a space comes before `data:`"),
    "a line end before another": ("\nhttps://host/a.png", "a space comes before `https:`"),
    "no comma": ("data:image/png;base64", "no comma"),
    "too long": ("A" * 40_000_000, "more than 20971520 bytes"),
}


@pytest.mark.parametrize(("url", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_neither_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidImage, match=reason):
        image_bytes(url)


@pytest.mark.parametrize("url", ["http://host/a.png", "HTTPS://host/a.png"])
def test_a_url_of_another_host_is_remote(url: str) -> None:
    assert is_remote(url)

"""What uv is told of pip's settings, and what is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.installer.packages import translated, without


@pytest.mark.parametrize(
    ("listing", "variables", "expected"),
    [
        ("", {}, {}),
        (
            "global.index-url='https://x.invalid/simple'\n",
            {},
            {"UV_DEFAULT_INDEX": "https://x.invalid/simple"},
        ),
        ("global.index-url='https://x.invalid'\n", {"UV_DEFAULT_INDEX": "mine"}, {}),
        ("global.index-url='a'\n:env:.index-url='b'\n", {}, {"UV_DEFAULT_INDEX": "b"}),
        (":env:.extra-index-url='a\\nb'\n", {}, {"UV_INDEX": "a b"}),
        ("global.cert='/etc/c a.pem'\n", {}, {"SSL_CERT_FILE": "/etc/c a.pem"}),
        ("freeze.index-url='a'\nglobal.timeout='3'\n", {}, {}),
    ],
)
def test_settings_of_pip(listing: str, variables: dict[str, str], expected: dict[str, str]) -> None:
    assert translated(listing, variables) == expected


def test_a_pin_is_left_out_with_its_hashes(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text(
        "a==1 \\\n    --hash=sha256:1\nb==2 \\\n    --hash=sha256:2\n    --hash=sha256:3\nb-c==3\n"
    )
    assert without("b", path) == "a==1 \\\n    --hash=sha256:1\nb-c==3\n"

"""The text in which servers hand endpoints of peers over."""

from __future__ import annotations

import pytest

from jan_serve.core.kv_transfer import PeerEndpoint
from jan_serve.errors import InvalidRequest

KEY = "A" * 43 + "="


def test_endpoints_come_back_from_their_text() -> None:
    endpoint = PeerEndpoint("::1", 65_535, "link", bytes(range(32)))
    assert PeerEndpoint.from_text(endpoint.to_text(), "x") == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "x" * 2000,
        '{"x":' + "[" * 1000,
        '{"host":"h","port":1,"key":"AA=="}',
        f'{{"host":"h","port":0,"key":"{KEY}"}}',
        f'{{"host":"","port":9,"key":"{KEY}"}}',
        f'{{"host":"h","port":70000,"key":"{KEY}"}}',
        '{"host":"h","port":9,"key":"é"}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="remote_kvtransfer_endpoint_info"):
        PeerEndpoint.from_text(text, "remote_kvtransfer_endpoint_info")

"""`jan-serve proxy` and `jan-serve nodes`: what they refuse, and what they show."""

from __future__ import annotations

import pytest

from jan_serve.cli.main import main
from tests.support.kept_logging import keep_logging as keep_logging


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--host", "0.0.0.0"], "no API key is set"),
        (["--node-network", "home"], "--node-network"),
        (["--api-key", "a b"], "without blanks"),
        (["--node", "ftp://x"], "--node: url: must begin with http://"),
        (["--node", "http://0.0.0.0:1"], "every address"),
        (["--node", "http://999.9.9.9:1"], "neither an IPv4 address nor a name"),
        (["--strategy", "best"], "prefix"),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_served(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["proxy", "--port", "0", "--forget", *flags]) == 2
    out, err = capsys.readouterr()
    assert words in err.replace("\n", " ") and "proxy" not in out


def test_without_a_proxy_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "--url", "http://127.0.0.1:1"]) == 3
    err = capsys.readouterr().err
    assert "no proxy answers" in err
    assert "`jan-serve proxy`" in err

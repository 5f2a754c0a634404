"""What the texts of settings become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from jan_serve.config.fields import (
    HOST_NAME,
    Folder,
    OptionalFile,
    PortList,
    SecretList,
    StrList,
    bytes_of_size,
    check_url,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1024b", 1024),
        ("8GB", 8_000_000_000),
        ("8g", 8_000_000_000),
        ("8GiB", 8 * 2**30),
        ("7.5 GiB", 15 * 2**29),
        ("0.5k", 500),
        ("2ki", 2048),
        ("500M", 500_000_000),
        (" 1 tib ", 2**40),
        ("123456789012345", 123_456_789_012_345),
    ],
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert bytes_of_size(text) == size


@pytest.mark.parametrize(
    "value", ["auto", "", "GB", "-1GB", "8 G B", "8GBs", "1e9", "1.k", "9" * 16, "1.1234567G", 7, 1.5, None]
)
def test_what_is_no_size_is_left_to_the_type_of_the_field(value: object) -> None:
    assert bytes_of_size(value) is value


@pytest.mark.parametrize("text", ["1.5", "1.0", "0.5", "1.5b"])
def test_a_part_of_a_byte_lacks_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text} is no number of bytes: it lacks a unit, as in 8GB"):
        bytes_of_size(text)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (StrList, "a, b ,,c", ("a", "b", "c")),
        (StrList, "", ()),
        (StrList, ["a,b"], ("a,b",)),
        (PortList, "80, 65535", (80, 65_535)),
        (PortList, [80, "81"], (80, 81)),
    ],
)
def test_lists_in_one_text_have_commas(kind: Any, value: object, expected: tuple[object, ...]) -> None:
    assert TypeAdapter[Any](kind).validate_python(value) == expected


def test_secrets_in_one_text_are_not_shown() -> None:
    secrets = TypeAdapter(SecretList).validate_python("one,two")
    assert [secret.get_secret_value() for secret in secrets] == ["one", "two"]
    assert "one" not in repr(secrets)


@pytest.mark.parametrize("value", ["0", "65536", "80;81", "http"])
def test_ports_are_those_that_one_connects_to(value: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(PortList).validate_python(value)


def test_folders_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = TypeAdapter(Folder)
    assert folder.validate_python("models") == tmp_path / "models"
    assert folder.validate_python("~/models") == tmp_path / "home" / "models"
    assert folder.validate_python("/models") == Path("/models").absolute()


@pytest.mark.parametrize(
    ("value", "name"), [("none", None), (None, None), ("./none", "none"), ("None", "None"), ("log", "log")]
)
def test_a_file_may_be_none(
    value: str | None, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = None if name is None else tmp_path / name
    assert TypeAdapter(OptionalFile).validate_python(value) == expected


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://huggingface.co", "https://huggingface.co"),
        ("http://192.168.1.5:8000/", "http://192.168.1.5:8000"),
        ("http://[fe80::1]:80/a/b/", "http://[fe80::1]:80/a/b"),
        ("HTTP://x", "HTTP://x"),
    ],
)
def test_an_address_loses_its_last_slash(url: str, kept: str) -> None:
    assert check_url(url, "http://example") == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "huggingface.co",
        "ftp://x",
        "https://",
        "http://:80",
        "http:///x",
        "https://user@x",
        "https://user:secret@x",
        "http://[::1",
        "http://[x]/",
        "http://x:port",
        "http://x:65536",
        "http://x:0",
    ],
)
def test_what_is_no_address_gets_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="must be an address such as http://example, without user"):
        check_url(url, "http://example")


@pytest.mark.parametrize(
    "url",
    [
        "https://x/?a=b",
        "https://x?",
        "https://x#",
        "https://x#a",
        "https://x\n",
        "https://x y",
        "https://x/ü",
    ],
)
def test_an_address_ends_with_the_host_or_a_path(url: str) -> None:
    with pytest.raises(ValueError, match="must end with the host or a path"):
        check_url(url, "http://example")


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("localhost", True),
        ("a-b.example_x.org:8000", True),
        ("192.168.1.5", True),
        ("[::1]", True),
        ("[fe80::1]:80", True),
        ("", False),
        ("::1", False),
        ("[x]", False),
        ("a b", False),
        ("a/b", False),
        ("a:", False),
        ("a:123456", False),
        ("a\n", False),
        ("http://a", False),
    ],
)
def test_names_of_the_host_header(text: str, is_name: bool) -> None:
    assert (HOST_NAME.match(text) is not None) == is_name

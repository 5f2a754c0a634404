"""Parses references to models on the hub, which become paths only if they are valid; names of the shipped catalogue."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from jan_serve.errors import HubError, HubNotFound, InvalidRequest

MAX_REFERENCE_LENGTH: Final = 512
MAX_FILE_DEPTH: Final = 4
_MAX_PART_BYTES: Final = 200
_HUB_HOSTS: Final = ("hf.co", "huggingface.co", "www.huggingface.co")
_SCHEMES: Final = ("https://", "http://", "hf://")
# As the hub restricts names of users and repositories.
_REPO_PART: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?\Z")
_REVISION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/+-]{0,198}[A-Za-z0-9_+-])?\Z")
_TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(10))}
)
_FORBIDDEN: Final = frozenset('<>:"|?*\\')


class HubReference(msgspec.Struct, frozen=True):
    """tag: a quantisation; file: a path in the repository; at most one of them is set."""

    repo: str
    tag: str | None = None
    file: str | None = None
    revision: str | None = None


def parse_reference(text: str) -> HubReference:
    """Parse `org/repo`, `org/repo:Q4_K_M`, `org/repo/file.gguf` or a page's URL. Raises InvalidRequest."""
    if not text or len(text) > MAX_REFERENCE_LENGTH or not text.isprintable():
        raise InvalidRequest(
            f"The name {text[:80]!a} is no model's: it is empty, too long, or has characters that cannot be printed.",
            param="model",
        )
    rest = _without_address(text)
    parts = rest.split("/")
    if len(parts) < 2:
        raise _no_reference(text)
    revision: str | None = None
    if len(parts) >= 5 and parts[2] in ("resolve", "blob", "tree"):
        revision = checked_revision(parts[3])
        parts = [*parts[:2], *parts[4:]]
    elif len(parts) == 4 and parts[2] == "tree":
        revision = checked_revision(parts[3])
        parts = parts[:2]
    org, name, *file = parts
    tag: str | None = None
    if not file and ":" in name:
        name, _, tag = name.partition(":")
        if not _TAG.match(tag):
            raise InvalidRequest(f"`{_shown(tag)}` is no quantisation: a name such as Q4_K_M.", param="model")
    repo = checked_repo(f"{org}/{name}")
    if not file:
        return HubReference(repo, tag=tag, revision=revision)
    path = "/".join(file)
    reason = _why_no_path(path)
    if reason is not None:
        raise InvalidRequest(f"The file {_shown(path)} {reason}.", param="model")
    return HubReference(repo, file=path, revision=revision)


def looks_like_reference(text: str) -> bool:
    """Whether `text` is a hub reference rather than a catalogue name."""
    return "/" in text


def checked_repo(repo: str) -> str:
    """`repo` if it has the form `org/name`. Raises InvalidRequest."""
    parts = repo.split("/")
    wrong = (not _REPO_PART.match(part) or ".." in part or _why_no_path(part) for part in parts)
    if len(parts) != 2 or any(wrong):
        raise _no_reference(repo)
    return repo


def checked_revision(revision: str) -> str:
    """`revision` if it can be a branch, tag or commit. Raises InvalidRequest."""
    if not _REVISION.match(revision) or ".." in revision or "//" in revision:
        reason = f"`{_shown(revision)}` is no revision: a branch, a tag or a commit id."
        raise InvalidRequest(reason, param="revision")
    return revision


def checked_digest(text: object) -> str:
    """A SHA-256 digest of 64 lower-case hexadecimal digits, without prefix. Raises HubError."""
    if not isinstance(text, str) or not _SHA256.match(text):
        raise HubError("the hub's SHA-256 digest is not one")
    return text


def is_safe_file(path: str) -> bool:
    """Whether a file name from a hub or a manifest is a safe relative path on every platform."""
    return _why_no_path(path) is None


def _why_no_path(path: str) -> str | None:
    parts = path.split("/")
    if len(parts) > MAX_FILE_DEPTH:
        return f"lies deeper than {MAX_FILE_DEPTH} folders"
    if not path.isprintable():
        return "holds characters that cannot be printed"
    if PurePosixPath(path).is_absolute() or any(part in ("", ".", "..") for part in parts):
        return "has an empty, `.` or `..` part"
    for part in parts:
        if _FORBIDDEN & set(part):
            return "holds characters that no file name may have"
        if part != part.strip(" ") or part.endswith("."):
            return "has a part that begins or ends with a blank, or ends with a dot"
        if part.startswith("."):
            return "has a hidden part"
        if part.split(".")[0].lower() in _DEVICES:
            return "has the name of a device"
        if len(part.encode("utf-8", "surrogatepass")) > _MAX_PART_BYTES:
            return f"has a part longer than {_MAX_PART_BYTES} bytes"
    return None


def _without_address(text: str) -> str:
    """Strip the hub's URL. Rejects other hosts: models come from the configured endpoint."""
    rest = text
    for scheme in _SCHEMES:
        if text.lower().startswith(scheme):
            parts = urlsplit(text)
            rest = unquote(f"{parts.netloc}{parts.path}").rstrip("/")
            if scheme == "hf://":
                return rest
            if parts.netloc.lower() not in _HUB_HOSTS:
                raise InvalidRequest(
                    f"{_shown(parts.netloc)} is not the hub. Models come from the configured endpoint only"
                    " (setting hf_endpoint); name the model as org/repo.",
                    param="model",
                )
            break
    host, _, path = rest.partition("/")
    return path if host.lower() in _HUB_HOSTS else rest


def _no_reference(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{_shown(text)}` is no model of the hub: these are named org/repo, org/repo:QUANT or org/repo/file.gguf.",
        param="model",
    )


def _shown(text: str) -> str:
    return ascii(text)[1:-1][:120]


class CatalogueEntry(msgspec.Struct, frozen=True):
    """A suggested model. Sizes in 10^9 bytes, parameters in billions, context in tokens. mmproj: its projector.
    memory_gb: memory to run it with 8,192 tokens. since: year and month of its weights. active: parameters that a
    token uses, if not all. known_as: names that Ollama has for it."""

    name: str
    title: str
    repo: str
    file: str
    quantization: str
    kinds: tuple[str, ...]
    parameters: float
    size_gb: float
    context: int
    memory_gb: float
    since: str
    licence: str
    note: str
    active: float | None = None
    mmproj: str | None = None
    known_as: tuple[str, ...] = ()


class Catalogue:
    """Empty if this installation has no catalogue file."""

    def __init__(self, entries: tuple[CatalogueEntry, ...] = ()) -> None:
        self._entries = {entry.name.casefold(): entry for entry in entries}
        self._known_as = {name: entry for entry in entries for name in entry.known_as}

    @classmethod
    def read(cls, path: Path | None) -> Catalogue:
        """Read a TOML file with a `[[model]]` table per entry. The file is shipped, so errors in it are bugs."""
        if path is None:
            return cls()
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(msgspec.convert(content["model"], list[CatalogueEntry])))

    def entries(self) -> tuple[CatalogueEntry, ...]:
        return tuple(self._entries.values())

    def find(self, name: str) -> CatalogueEntry | None:
        """name: upper and lower case are the same."""
        name = name.casefold()
        return self._entries.get(name) or self._known_as.get(name.removesuffix(":latest"))

    def has(self, text: str) -> bool:
        return self.find(text) is not None or self.find(text.partition(":")[0]) is not None

    def reference(self, text: str) -> tuple[HubReference, CatalogueEntry]:
        """Resolve `name`, `name:QUANT` or a name that Ollama has. Raises HubNotFound with similar names."""
        name, tag = text, ""
        entry = self.find(text)
        if entry is None:
            name, _, tag = text.partition(":")
            entry = self.find(name)
        if entry is None:
            near = difflib.get_close_matches(name.casefold(), list(self._entries), n=3, cutoff=0.5)
            near = near or [known for known in self._entries if name.casefold() in known][:3]
            hint = (
                f"Did you mean {', '.join(near)}?" if near else "`jan-serve pull --list` shows the catalogue."
            )
            raise HubNotFound(
                f"There is no model `{text}` in the catalogue. {hint} For any other model, give its Hugging Face name: "
                "org/repo.",
                param="model",
            )
        if tag and tag.casefold() not in (entry.quantization.casefold(), "latest"):
            return HubReference(entry.repo, tag=tag), entry
        return HubReference(entry.repo, file=entry.file), entry

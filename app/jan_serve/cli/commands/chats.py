"""`jan-serve chats`: the chats that the server keeps, which the page shows, too."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Generator, Iterable
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Final, cast
from urllib.parse import quote

import typer

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, option
from jan_serve.cli.chat.kept_chat import CHATS_PATH, all_chats, find_chat, show_messages
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output, shortened
from jan_serve.store.files import private_opener, user_path

_MAX_FILE_BYTES: Final = 2 << 30
_PIECE_CHARS: Final = 4_000_000
"""A request has at most so many characters of chats."""
_WORDS: Final = ("list", "show", "search", "export", "import", "delete", "restore")
_TAKES_ONE: Final = frozenset({"show", "search", "import", "delete", "restore"})


def chats(
    what: Annotated[str, argument("|".join(_WORDS), "What to do.")] = "list",
    which: Annotated[
        list[str] | None, argument("ID|WORDS|FILE", "A chat, words to look for, or a file.")
    ] = None,
    limit: Annotated[int, option("--lines -n", "Number of chats to list.", min=1)] = 20,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List, show, search, export, import or delete the chats of the server. Starts a server if none runs.

    `import` reads exports of jan-serve, llama.cpp's page, Open WebUI and ChatGPT, also within a ZIP file.
    `jan-serve run --continue` goes on with a chat.
    """
    words = which or []
    if what not in _WORDS:
        raise WrongUse(f"{what!r} is none of {', '.join(_WORDS)}.")
    if not words and what in _TAKES_ONE:
        raise WrongUse(f"`jan-serve chats {what}` needs an argument.", "See --help.")
    loaded = load_settings(config_file=config)
    with any_server(loaded, url) as client:
        match what:
            case "list":
                _print_list(all_chats(client, limit), "There are no chats.", as_json=as_json)
            case "search":
                found = all_chats(client, limit, q=" ".join(words))
                _print_list(found, "No chat has words that begin so.", as_json=as_json)
            case "show":
                _show(client, words[0], as_json=as_json)
            case "export":
                _export(client, words)
            case "import":
                _import(client, words, as_json=as_json)
            case "delete":
                for word in words:
                    chat = find_chat(client, word)
                    client.delete(_path(chat["id"]))
                    output.note(
                        f"{chat['title']}: `jan-serve chats restore {chat['id']}` brings it back for a day."
                    )
            case _:
                for word in words:
                    output.note(f"{client.post(_path(word) + '/restore', {})['title']} is back.")


def _path(chat_id: str) -> str:
    return f"{CHATS_PATH}/{quote(chat_id, safe='')}"


def _print_list(found: list[dict[str, Any]], otherwise: str, *, as_json: bool) -> None:
    if as_json:
        output.json(found)
        return
    if not found:
        output.note(otherwise)
        return
    columns: dict[str, list[str]] = {
        "id": [chat["id"][:8] for chat in found],
        "changed": [
            datetime.fromtimestamp(chat["updated"] / 1_000).astimezone().strftime("%Y-%m-%d %H:%M")
            for chat in found
        ],
        "title": [shortened(chat["title"], 60) for chat in found],
        "folder": [chat["folder"] for chat in found],
        "found": [shortened(chat["excerpt"], 60) for chat in found],
    }
    optional = ("folder", "found", "changed")
    shown = {name: cells for name, cells in columns.items() if any(cells) or name not in optional}
    output.table(tuple(shown), zip(*shown.values(), strict=True), optional=optional)


def _show(client: ServerClient, wanted: str, *, as_json: bool) -> None:
    chat = client.get(_path(find_chat(client, wanted)["id"]))
    if as_json:
        output.json(chat)
        return
    show_messages(client, chat["messages"])


def _export(client: ServerClient, words: list[str]) -> None:
    """Write the chats to a file, or to standard output."""
    text = json.dumps({"chats": [*_exported(client)]}, ensure_ascii=False)
    if not words:
        output.raw(text)
        return
    path = user_path(words[0])
    try:
        with open(path, "x", encoding="utf-8", opener=private_opener) as file:
            file.write(text)
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}") from None
    output.note(str(path))


def _exported(client: ServerClient) -> Generator[dict[str, Any]]:
    before = ""
    while True:
        page = client.get(f"{CHATS_PATH}/export", {"before": before} if before else None)
        yield from page["chats"]
        if page["before"] is None:
            return
        before = str(page["before"])


def _import(client: ServerClient, words: list[str], *, as_json: bool) -> None:
    total: dict[str, Any] = {"added": 0, "present": 0, "refused": []}
    for word in words:
        for piece in _pieces(_chats_in(user_path(word))):
            answer = client.post(f"{CHATS_PATH}/import", {"chats": piece})
            total = {name: value + answer[name] for name, value in total.items()}
    if as_json:
        output.json(total)
        return
    output.note(f"{total['added']} chats are imported, {total['present']} were there already.")
    for refused in total["refused"]:
        output.error(f"{refused['title']}: {refused['reason']}")
    if total["refused"]:
        raise typer.Exit(1)


def _chats_in(path: Path) -> list[Any]:
    """The JSON of a file, or that of the conversations in a ZIP file. Raises CommandError."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                members = [
                    each for each in archive.infolist() if fnmatch(each.filename, "*conversations*.json")
                ]
                _check_size(path, sum(each.file_size for each in members))
                texts = [archive.read(each) for each in members]
        else:
            _check_size(path, path.stat().st_size)
            texts = [path.read_bytes()]
        read = [json.loads(text) for text in texts]
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        raise WrongUse(f"{path}: is no JSON, and no ZIP file with it.") from None
    found = list[Any]()
    for each in read:
        items: Any = cast(dict[str, Any], each).get("chats", each) if isinstance(each, dict) else each
        found += cast(list[Any], items) if isinstance(items, list) else [items]
    if not found:
        raise WrongUse(f"{path}: has no chats.")
    return found


def _check_size(path: Path, size: int) -> None:
    if size > _MAX_FILE_BYTES:
        raise WrongUse(f"{path}: has {size} bytes, the limit is {_MAX_FILE_BYTES}.")


def _pieces(chats: Iterable[Any]) -> Generator[list[Any]]:
    piece, size = list[Any](), 0
    for chat in chats:
        length = len(json.dumps(chat))
        if piece and size + length > _PIECE_CHARS:
            yield piece
            piece, size = [], 0
        piece.append(chat)
        size += length
    if piece:
        yield piece

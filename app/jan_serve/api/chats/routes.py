"""/extras/chats: chats of the key that wrote them."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Body, Query
from starlette.responses import Response

from jan_serve.api.chats import wire
from jan_serve.api.chats.awaited import Ask, AwaitedResponses
from jan_serve.api.chats.imports import exported_form, read_chats
from jan_serve.core.caller import cache_salt
from jan_serve.dialects.shared.documented_errors import (
    USUAL,
    ErrorBody,
    ValidationErrorBody,
    documented_errors,
)
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply
from jan_serve.journal.chats import RESTORABLE_MS, ChatQuery, ChatSummary, ChatTable, Conflict, StoredChat
from jan_serve.journal.journal import Journal

T = TypeVar("T")

_EXPORTED: Final = 100
_EXPORTED_BYTES: Final = 8 << 20
"""Bytes after which a page of an export ends."""
_ERRORS: Final = documented_errors(
    ErrorBody, (*USUAL, 409, 507), {422: {"model": ValidationErrorBody | ErrorBody}}
)

_Limit = Annotated[int, Query(ge=1, le=200, description="Number of chats.")]
_Before = Annotated[int | None, Query(ge=0, le=2**63 - 1, description="`before` of the previous page.")]


def chats_router(journal: Journal, ask: Ask) -> APIRouter:
    """ask: see AwaitedResponses."""
    router = APIRouter(route_class=JsonRoute, tags=["Chats"], responses=_ERRORS)
    table = ChatTable(journal)
    awaited = AwaitedResponses(table, ask)
    _add_lists(router, table, awaited)
    _add_transfers(router, table, awaited)
    _add_chats(router, table, awaited)
    return router


def _add_lists(router: APIRouter, table: ChatTable, awaited: AwaitedResponses) -> None:
    @router.get("/extras/chats", summary="Chats", response_model=wire.ChatList)
    async def list_chats(
        limit: _Limit = 50,
        before: _Before = None,
        q: Annotated[str, Query(max_length=400, description="How words of each chat begin.")] = "",
        folder: Annotated[str | None, Query(max_length=100)] = None,
        pinned: bool | None = None,
    ) -> Response:
        """List the chats of this key, the latest first, or those in which all words are found."""
        owner = cache_salt.get()
        if not table.is_kept:
            return json_reply({"data": [], "before": None, "store": None})
        await awaited.put_in()
        asked = ChatQuery(limit=limit, before=before, words=q, folder=folder, pinned=pinned)
        found, has_more = await table.page(owner, asked)
        return json_reply(
            {
                "data": [msgspec.structs.asdict(each.head) | {"excerpt": each.excerpt} for each in found],
                "before": found[-1].number if has_more else None,
                "store": await table.store_id(owner),
            }
        )

    @router.get("/extras/chats/folders", summary="Folders of chats", response_model=wire.FolderList)
    async def list_folders() -> Response:
        """List the folders that have chats, by name."""
        found = await table.folders(cache_salt.get())
        return json_reply({"data": [{"name": name, "chats": chats} for name, chats in found]})

    @router.post("/extras/chats/folders", summary="Rename a folder of chats", response_model=wire.FolderLine)
    async def rename_folder(body: wire.ChangeFolder) -> Response:
        """Move all chats of a folder to another one, or with an empty name to none."""
        chats = await table.rename_folder(cache_salt.get(), body.folder, body.name)
        return json_reply({"name": body.name, "chats": chats})


def _add_transfers(router: APIRouter, table: ChatTable, awaited: AwaitedResponses) -> None:
    @router.get("/extras/chats/export", summary="Export chats", response_model=wire.ExportedChats)
    async def export_chats(before: _Before = None, id: str | None = None) -> Response:
        """Get whole chats, the latest first: all of them page by page, or one. `import` reads what this gives."""
        owner = cache_salt.get()
        await awaited.put_in(id)
        if id is not None:
            found = _present(await table.find(owner, id), id)
            return json_reply({"chats": [_exported(found)], "before": None})
        listed, has_more = await table.page(owner, ChatQuery(limit=_EXPORTED, before=before))
        chats, size, last = list[dict[str, Any]](), 0, None
        for each in listed:
            if size > _EXPORTED_BYTES:
                has_more = True
                break
            if (found := await table.find(owner, each.head.id)) is not None:
                chats.append(_exported(found))
                size += len(found.content)
            last = each.number
        return json_reply({"chats": chats, "before": last if has_more else None})

    @router.post("/extras/chats/import", summary="Import chats", response_model=wire.ImportedChats)
    async def import_chats(
        body: Annotated[Any, Body()],
        store: Annotated[
            bool, Query(description="False: return the chats instead, for a client that keeps them.")
        ] = True,
    ) -> Response:
        """Add the chats of an export: of this server, llama.cpp's page, Open WebUI or ChatGPT (`conversations.json`).

        Chats that are there already are unchanged.
        """
        chats, refused = await asyncio.to_thread(read_chats, body)
        added = await table.add(cache_salt.get(), chats) if store else 0
        return json_reply(
            {
                "added": added,
                "present": len(chats) - added if store else 0,
                "refused": [msgspec.structs.asdict(each) for each in refused],
                "chats": [] if store else [exported_form(each) for each in chats],
            }
        )


def _add_chats(router: APIRouter, table: ChatTable, awaited: AwaitedResponses) -> None:
    @router.get("/extras/chats/{chat_id}", summary="A chat", response_model=wire.Chat)
    async def get_chat(chat_id: str) -> Response:
        """Get a chat with its messages, and the version to name when it is written again."""
        await awaited.put_in(chat_id)
        found = _present(await table.find(cache_salt.get(), chat_id), chat_id)
        return json_reply({**msgspec.structs.asdict(found.head), **msgspec.json.decode(found.content)})

    @router.put("/extras/chats/{chat_id}", summary="Write a chat", response_model=wire.ChatHead)
    async def put_chat(chat_id: str, body: wire.PutChat) -> Response:
        """Write what was said. 409 if another version than the one that it was made from is there."""
        if not wire.ID.fullmatch(chat_id):
            raise wrong("id", f"1 to 64 letters, digits, - and _: {chat_id[:100]!r}")
        chat = await asyncio.to_thread(body.written, chat_id)
        before = await table.awaits(cache_salt.get(), chat_id)
        done = await table.put(cache_salt.get(), chat, body.version)
        if isinstance(done, Conflict):
            raise _conflict(done, body.version)
        await awaited.forget({*before} - {*chat.awaits})
        return _shown(done)

    @router.patch(
        "/extras/chats/{chat_id}", summary="Rename, move or pin a chat", response_model=wire.ChatHead
    )
    async def change_chat(chat_id: str, body: wire.ChangeChat) -> Response:
        """Change the title, the folder or the pin, which is no new version."""
        names = body.model_dump(exclude_none=True)
        return _shown(_present(await table.change(cache_salt.get(), chat_id, names), chat_id))

    @router.delete("/extras/chats/{chat_id}", summary="Delete a chat", response_model=wire.DeletedChat)
    async def delete_chat(chat_id: str) -> Response:
        """Delete a chat, and end what it waits for. For a day it can be restored; then it is erased."""
        await awaited.cancel(chat_id)
        _present(await table.delete(cache_salt.get(), chat_id) or None, chat_id)
        return json_reply({"id": chat_id, "deleted": True, "restorable_s": RESTORABLE_MS // 1_000})

    @router.post("/extras/chats/{chat_id}/restore", summary="Restore a chat", response_model=wire.ChatHead)
    async def restore_chat(chat_id: str) -> Response:
        """Take back the deletion of a chat."""
        return _shown(_present(await table.restore(cache_salt.get(), chat_id), chat_id))


def _present(found: T | None, chat_id: str) -> T:
    if found is None:
        raise http_problem(HTTPStatus.NOT_FOUND, "chat_not_found", f"There is no chat {chat_id[:100]!r}.")
    return found


def _exported(chat: StoredChat) -> dict[str, Any]:
    facts = msgspec.structs.asdict(chat.head)
    del facts["version"]
    return {**facts, **msgspec.json.decode(chat.content)}


def _shown(head: ChatSummary) -> Response:
    return json_reply(msgspec.structs.asdict(head) | {"excerpt": ""})


def _conflict(conflict: Conflict, version: int) -> HttpError:
    if conflict.version is None:
        return http_problem(409, "chat_deleted", "The chat is deleted. `restore` brings it back.")
    return http_problem(
        409,
        "chat_conflict",
        f"The chat has changed: its version is {conflict.version}, and this was made from {version}. Get it, and write"
        " what both have.",
    )

"""/extras/mcp: the tools of MCP servers for the page, and their calls; for the owner of the server alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from jan_serve.config import Settings
from jan_serve.dialects.shared.documented_errors import (
    USUAL,
    ErrorBody,
    ValidationErrorBody,
    documented_errors,
)
from jan_serve.errors import SettingsError
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import http_problem
from jan_serve.http.guards.auth import presents
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply
from jan_serve.mcp.server_file import McpServer, read_servers

if TYPE_CHECKING:
    from jan_serve.mcp.sessions import McpServers

_ERRORS: Final = documented_errors(
    ErrorBody, (*USUAL, 403), {422: {"model": ValidationErrorBody | ErrorBody}}
)


class ToolLine(BaseModel):
    """name: in requests. tool: as its server calls it. parameters: a JSON Schema."""

    name: str
    tool: str
    description: str
    parameters: dict[str, Any]


class LeftOutLine(BaseModel):
    """A tool that is not offered. reason: the end of a sentence that begins with it."""

    tool: str
    reason: str


class ServerLine(BaseModel):
    """error: why it has no connection, as the end of a sentence that begins with its name."""

    name: str
    error: str | None
    tools: list[ToolLine]
    left_out: list[LeftOutLine]


class ToolServerList(BaseModel):
    """error: why no server could be started."""

    servers: list[ServerLine]
    error: str | None


class ToolCallRequest(BaseModel):
    """arguments: JSON, as the model wrote it."""

    name: Annotated[str, Field(max_length=100)]
    arguments: Annotated[str, Field(max_length=1 << 20)] = "{}"


class ToolCallResult(BaseModel):
    """pictures: data URLs. failed: the text says why."""

    text: str
    pictures: list[str]
    failed: bool


def mcp_router(settings: Settings, at_end: Callable[[Callable[[], Awaitable[None]]], None]) -> APIRouter:
    """at_end: gets what ends the servers."""

    def check(request: Request) -> None:
        _check_owner(request, settings)

    router = APIRouter(
        route_class=JsonRoute, tags=["Extras"], responses=_ERRORS, dependencies=[Depends(check)]
    )
    named: tuple[McpServer, ...] = ()
    running: McpServers | None = None

    async def close() -> None:
        if running is not None:
            await running.close()

    at_end(close)

    async def opened() -> McpServers:
        """The servers of the file, started by the first request, and anew once the file names others.

        Raises SettingsError if a package is missing.
        """
        from jan_serve.mcp.sessions import McpServers

        nonlocal named, running
        servers = read_servers(settings.mcp_file) if settings.mcp_file is not None else ()
        if running is None or servers != named:
            before, running, named = running, McpServers(servers), servers
            if before is not None:
                await before.close()
        return running

    @router.get("/extras/mcp", summary="MCP servers", response_model=ToolServerList)
    async def list_servers(request: Request) -> Response:
        """Start the MCP servers of `mcp_file` that do not run, and list their tools. Takes a minute at most."""
        try:
            servers = await opened()
        except SettingsError as error:
            return json_reply({"servers": [], "error": error.message})
        await while_connected(request, servers.open())
        found = {"servers": servers.sessions, "error": None}
        return json_reply(ToolServerList.model_validate(found, from_attributes=True).model_dump())

    @router.post("/extras/mcp/call", summary="Call a tool", response_model=ToolCallResult)
    async def call_tool(request: Request, body: ToolCallRequest) -> Response:
        """Call a tool of an MCP server. The call is cancelled when the client leaves."""
        try:
            servers = await opened()
        except SettingsError as error:
            return json_reply({"text": error.message, "pictures": [], "failed": True})
        result = await while_connected(request, servers.call(body.name, body.arguments))
        return json_reply(result)

    return router


def _check_owner(request: Request, settings: Settings) -> None:
    """Raises 403. The owner has the first key; without keys, whoever can call a server that only this machine reaches.

    No page of another origin is the owner's, not even one of another local program.
    """
    headers = request.headers
    origin = headers.get("origin")
    if (
        origin is not None
        and headers.get("sec-fetch-site") != "same-origin"
        and urlsplit(origin).netloc != headers.get("host")
    ):
        raise http_problem(
            HTTPStatus.FORBIDDEN, "forbidden_origin", "Pages of other origins may not use MCP servers"
        )
    if settings.api_keys:
        is_owner = presents(request.scope, settings.api_keys[0].get_secret_value())
    else:
        is_owner = settings.is_loopback
    if not is_owner:
        message = "MCP servers are for the first of `api_keys` alone, or for this machine if there is none"
        raise http_problem(HTTPStatus.FORBIDDEN, "owner_only", message)

"""Where Anthropic's routes are, and what a proxy knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.types import Scope

from jan_serve.dialects.anthropic.claude_clients import cut_billing_line, names_for
from jan_serve.dialects.anthropic.errors import error_body, render_error
from jan_serve.dialects.outline import ModelList, Outline, Row, StreamErrors, routes
from jan_serve.dialects.shared.limits import MAX_PAGE
from jan_serve.errors import InvalidRequest
from jan_serve.http.guards.guard import header_values
from jan_serve.http.paths import is_below, reroute
from jan_serve.http.replies import named_frame

PREFIX: Final = "/anthropic"
"""Prefix of paths that another dialect has at the root."""
MESSAGES: Final = "/v1/messages"
_SHARED: Final = ("/v1/models", "/v1/files")
"""Anthropic's for requests with its header. It has no files here: such a request gets its form of 404."""
_DOUBLED: Final = "/v1" + MESSAGES
"""Where a base URL ends with /v1, though clients add it."""
_VERSION: Final = b"anthropic-version"


def rewrite_scope(scope: Scope) -> None:
    path: str = scope["path"]
    if is_below(path, (_DOUBLED,)):
        reroute(scope, path.removeprefix("/v1"))
    elif is_below(path, (PREFIX + MESSAGES,)):
        reroute(scope, path.removeprefix(PREFIX))
    elif is_below(path, _SHARED) and header_values(scope, _VERSION):
        reroute(scope, PREFIX + path)


def _page_of(rows: list[Row], query: Mapping[str, str]) -> object:
    """A page of a list. Raises InvalidRequest."""
    from jan_serve.dialects.anthropic.model_pages import page  # a server starts without it

    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidRequest(f"limit: must be a number from 1 to {MAX_PAGE}", param="limit")
    return page(cast(Any, rows), int(limit), query.get("after_id"), query.get("before_id"))


OUTLINE: Final = Outline(
    (MESSAGES, PREFIX),
    errors=dict.fromkeys((MESSAGES, PREFIX), render_error),
    rewrite_scope=rewrite_scope,
    journal_paths=(f"{MESSAGES}/batches",),
    forwarded=routes(MESSAGES, f"{MESSAGES}/count_tokens"),
    stream_errors={MESSAGES: StreamErrors(lambda problem: named_frame(error_body(problem)))},
    lists=(
        ModelList(f"{PREFIX}/v1/models", "data", "id", _page_of, query=f"?limit={MAX_PAGE}", names=names_for),
    ),
    names=names_for,
    prompt_members=("tools", "system", "messages"),
    cut_system=cut_billing_line,
)

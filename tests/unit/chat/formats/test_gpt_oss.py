"""To whom a message of gpt-oss goes: a function of the request, a built-in tool, or a role, which is no tool."""

from __future__ import annotations

import pytest

from jan_serve.chat.formats.gpt_oss import _route  # pyright: ignore[reportPrivateUsage]
from jan_serve.chat.parsers.message_parser import Kind, Route

ROLES = pytest.mark.parametrize("name", ["assistant", "user", "all"])


@ROLES
def test_a_role_is_no_tool_whatever_recipient_comes_first(name: str) -> None:
    assert _route(f"<|channel|>commentary to=functions.add to={name}").kind is Kind.CALL
    assert _route(f"<|channel|>final to={name}").kind is Kind.TEXT


@ROLES
def test_a_function_may_have_the_name_of_a_role(name: str) -> None:
    route = _route(f"<|channel|>commentary to=functions.{name} <|constrain|>json")
    assert route == Route(Kind.CALL, name)

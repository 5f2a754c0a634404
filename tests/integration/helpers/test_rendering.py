"""The renderer's processes: what templates cost them, and that nothing a template does costs the caller more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import pytest

from jan_serve.core.messages import ImagePart, Message
from jan_serve.core.request import ChatPrompt, RenderedChat, RenderRequest
from jan_serve.errors import ProtocolError, TemplateError, UnsupportedContent
from jan_serve.helpers.kinds import RENDERING
from jan_serve.helpers.pool import HelperPool
from tests.integration.helpers.helper_pools import helper_pool
from tests.support.drawn_grid import some
from tests.support.processes import children

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 4, tzinfo=UTC)
HI = (Message(role="user", content="Hi"),)
SHOW = "{{ messages[0].content }}"


def request(source: str | None, messages: tuple[Message, ...] = HI, **fields: object) -> RenderRequest:
    prompt = ChatPrompt(messages=messages, **fields)  # pyright: ignore[reportArgumentType]: tests pass what they name
    return RenderRequest(prompt=prompt, template=source, bos_token="<s>", now=NOW)


def renderers(
    command: Sequence[str] | None = None, **limits: float
) -> AbstractAsyncContextManager[HelperPool[RenderRequest, RenderedChat]]:
    return helper_pool(RENDERING, command, **limits)


# Each takes far more than a template may have: time (by nesting, by backtracking) or memory.
HOSTILE = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "long repeat": "{{ 'a' * 3000000000 }}",
    "wide format": "{{ '%2000000000d' % 1 }}",
    "centered": "{{ 'a' | center(2000000000) }}",
    "doubling": "{% set ns = namespace(s='ab') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "text over the pipe's limit": "{% set t = ('\U0001f600' ~ messages[0].role[:0]) * 1048576 %}"
    "{% for i in range(16) %}{{ t }}{% endfor %}",
    "long words": "{{ raise_exception(messages[0].content * 34000000) }}",
    "growing list": "{% set x = [1] %}{% for i in range(99999) %}{{ x.extend(x) or '' }}{% endfor %}",
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", some(HOSTILE, 4))
async def test_a_template_that_eats_time_or_memory_is_ended(name: str) -> None:
    async with renderers() as pool:
        with pytest.raises(TemplateError):
            await pool.ask(request(HOSTILE[name]))
        assert (await pool.ask(request(SHOW))).text == "Hi"


async def test_a_process_that_ran_out_of_memory_is_replaced() -> None:
    async with renderers() as pool:
        await pool.start()
        [process] = children()
        with pytest.raises(TemplateError, match="memory"):
            await pool.ask(request(HOSTILE["growing list"]))
        assert (await pool.ask(request(SHOW))).text == "Hi"
        assert process not in children()


async def test_what_templates_leave_in_memory_is_not_held_against_others() -> None:
    """A list in itself is freed only when the interpreter looks for such, and is not counted against its template."""
    leaking = "{% set x = [messages[0].content * 3000000] %}{{ x.append(x) or '' }}" + SHOW
    async with renderers() as pool:
        for _ in range(5):
            assert (await pool.ask(request(leaking))).text == "Hi"
        assert (await pool.ask(request(SHOW))).text == "Hi"


async def test_arguments_of_a_request_are_held_to_the_same() -> None:
    async with renderers() as pool:
        source = "{% for a in range(n) %}{% for b in range(n) %}{% endfor %}{% endfor %}" + SHOW
        with pytest.raises(TemplateError):
            await pool.ask(request(source, template_kwargs={"n": 99999}))
        assert (await pool.ask(request(source, template_kwargs={"n": 2}))).text == "Hi"


async def test_errors_come_back_as_they_are() -> None:
    async with renderers() as pool:
        with pytest.raises(TemplateError, match="no system role, please") as caught:
            await pool.ask(request("{{ raise_exception('no system role, please') }}"))
        assert caught.value.param == "messages"
        for source in (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        ):
            with pytest.raises(TemplateError):
                await pool.ask(request(source))
        for source in ("{{ '\\ud800' }}", "{{ raise_exception('\\ud800') }}"):
            with pytest.raises(TemplateError, match=r"half of a surrogate pair|messages: \?"):
                await pool.ask(request(source))
        with pytest.raises(UnsupportedContent):
            await pool.ask(request(None, (Message(role="user", content=(ImagePart("file:///x"),)),)))
        with pytest.raises(ProtocolError):
            await pool.ask(request(SHOW, template_kwargs={"n": "\ud800"}))
        assert (
            await pool.ask(request(None))
        ).text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


async def test_integers_of_any_size_cross_the_pipe() -> None:
    async with renderers() as pool:
        kwargs = {"n": 2**256 - 1, "m": [{"a": -(10**30)}]}
        text = (await pool.ask(request("{{ n }} {{ m | tojson }}", template_kwargs=kwargs))).text
    assert text == f'{2**256 - 1} [{{"a": {-(10**30)}}}]'

"""Renders the Jinja chat template that a GGUF file brings, in a sandbox. No I/O; the clock is handed in.

A template is code from an untrusted file: it sees immutable values, no Python attributes that start with an
underscore, and none of Jinja's globals beyond `range`, `dict` and `namespace`. What it can still do is use time and
memory, so a server renders where it can stop waiting; here only the length of the output is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jan_serve.chat.fallback import CHATML
from jan_serve.chat.template_values import template_messages, template_tool_choice, template_tools
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import TemplateError

MAX_TEMPLATE_CHARS: Final = 1 << 20
"""A template file beyond this is not a chat template; compiling takes time in proportion."""

MAX_OUTPUT_CHARS: Final = 16 << 20
"""About twice the longest body the server takes by default: templates add marks, they do not multiply."""

_ALLOWED_GLOBALS: Final = ("range", "dict", "namespace")


class TemplateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a render needs of the model. source: None where the GGUF brings no template."""

    source: str | None
    bos_token: str = ""
    eos_token: str = ""


class _Raised(Exception):
    """The template called raise_exception()."""


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`: marks training text in Hugging Face templates; here only its body."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The nodes of the body, in place of the block."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, with the arguments that Hugging Face templates may pass."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object = "") -> NoReturn:
    raise _Raised(str(message))


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag], cache_size=0
    )
    names: dict[str, Any] = vars(environment)["globals"]
    for name in names.keys() - set(_ALLOWED_GLOBALS):
        del names[name]
    names["raise_exception"] = _raise_exception
    filters: dict[str, Any] = vars(environment)["filters"]
    filters["tojson"] = _tojson
    return environment


@lru_cache(maxsize=32)
def _compile(source: str) -> jinja2.Template:
    if len(source) > MAX_TEMPLATE_CHARS:
        raise TemplateError(
            f"the chat template has {len(source)} characters, the limit is {MAX_TEMPLATE_CHARS}"
        )
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(
            f"the chat template does not compile: line {error.lineno}: {error.message}"
        ) from error
    except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        raise TemplateError(f"the chat template does not compile: {type(error).__name__}") from error


def render_prompt(prompt: ChatPrompt, facts: TemplateFacts, now: Callable[[], datetime]) -> str:
    """The prompt as the text that the model was trained on, ready for its answer.

    Uses CPU for as long as the template wants: call it off the event loop. Raises TemplateError with the template's own
    words where it refused the messages, and UnsupportedContent.
    """

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    values: dict[str, Any] = {
        **prompt.template_kwargs,
        "messages": template_messages(prompt.messages),
        "tools": template_tools(prompt.tools),
        "tool_choice": template_tool_choice(prompt.tool_choice),
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "add_generation_prompt": True,
        "strftime_now": strftime_now,
    }
    return _render(_compile(facts.source or CHATML), values)


def _render(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    length = 0
    try:
        for piece in template.generate(values):
            length += len(piece)
            if length > MAX_OUTPUT_CHARS:
                raise TemplateError(f"the chat template wrote more than {MAX_OUTPUT_CHARS} characters")
            pieces.append(piece)
    except _Raised as error:
        raise TemplateError(f"the chat template refused the messages: {error}", param="messages") from error
    except TemplateError:
        raise
    except RecursionError as error:
        raise TemplateError("the chat template calls itself too deeply") from error
    except MemoryError as error:
        raise TemplateError("the chat template used too much memory") from error
    except Exception as error:  # whatever the template's code runs into is the template's error
        reason = str(error).splitlines()[0] if isinstance(error, jinja2.TemplateError) and str(error) else ""
        raise TemplateError(f"the chat template failed: {type(error).__name__} {reason}".rstrip()) from error
    return "".join(pieces)

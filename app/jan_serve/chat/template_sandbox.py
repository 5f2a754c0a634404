"""The Jinja sandbox of chat templates, with the helpers that Hugging Face templates expect. No I/O.

A template is code from an untrusted file. It sees plain values, no Python attributes that start with an underscore, and
of Jinja's globals only `range`, `dict` and `namespace`. It may change lists and mappings, as some templates do: each
render has its own. It can still use time and memory, so a server renders in a process that it can kill; this module
bounds only the length of the output.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jan_serve.errors import TemplateError

MAX_TEMPLATE_CHARS: Final = 1 << 20
"""No real chat template is longer; compile time is proportional."""

MAX_OUTPUT_CHARS: Final = 16 << 20
"""About twice the default limit of a request body: templates add markers, they do not multiply."""

MAX_WORDS_CHARS: Final = 2000
"""Most characters of a template's own words in an error."""

_ALLOWED_GLOBALS: Final = ("range", "dict", "namespace")
_ALLOWED_CHANGES: Final = {list: ("append", "extend", "insert", "pop"), dict: ("update", "pop", "setdefault")}


class _Raised(Exception):
    """The template called raise_exception()."""


class _Environment(ImmutableSandboxedEnvironment):
    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Extends the base class: methods that change lists and mappings are allowed."""
        if any(isinstance(obj, kind) and attr in names for kind, names in _ALLOWED_CHANGES.items()):
            return True
        return super().is_safe_attribute(obj, attr, value)


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks training text for Hugging Face: only the body is kept."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Replace the block by the nodes of its body."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _plain(value: object) -> Any:
    """A JSON value for the lazy results of `map` and `select`, which templates pass to tojson."""
    return list(cast(Iterator[object], value)) if isinstance(value, Iterator) else str(value)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes; the arguments are those of Hugging Face's filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_plain,
    )


def _raise_exception(message: object = "") -> NoReturn:
    raise _Raised(str(message))


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag], cache_size=0
    )
    names: dict[str, Any] = vars(environment)["globals"]
    for name in names.keys() - set(_ALLOWED_GLOBALS):
        del names[name]
    names["raise_exception"] = _raise_exception
    filters: dict[str, Any] = vars(environment)["filters"]
    filters["tojson"] = _tojson
    return environment


@lru_cache(maxsize=128)
def compiled(source: str) -> jinja2.Template:
    """The compiled template, cached. Raises TemplateError."""
    if len(source) > MAX_TEMPLATE_CHARS:
        raise TemplateError(
            f"the chat template has {len(source)} characters, the limit is {MAX_TEMPLATE_CHARS}"
        )
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(
            f"the chat template does not compile: line {error.lineno}: {_words(error.message or '')}"
        ) from error
    except (jinja2.TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
        raise TemplateError(f"the chat template does not compile: {type(error).__name__}") from error


def _words(text: str) -> str:
    """A template's words for an error: of bounded length, and encodable as UTF-8."""
    return text[:MAX_WORDS_CHARS].encode(errors="replace").decode()


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TemplateError(
            "the chat template wrote half of a surrogate pair, which is no character"
        ) from error
    return text


def _generated(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    length = 0
    for piece in template.generate(values):
        length += len(piece)
        if length > MAX_OUTPUT_CHARS:
            raise TemplateError(f"the chat template wrote more than {MAX_OUTPUT_CHARS} characters")
        pieces.append(piece)
    return _encodable("".join(pieces))


def rendered(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    """The rendered text. Raises TemplateError, with the template's own words if it rejects the messages."""
    try:
        try:
            return _generated(template, values)
        except MemoryError:
            pass  # its traceback holds what took the memory
        gc.collect()  # lists of earlier texts that hold themselves are freed by nothing else
        return _generated(template, values)
    except _Raised as error:
        words = _words(str(error))
        raise TemplateError(f"the chat template refused the messages: {words}", param="messages") from error
    except TemplateError:
        raise
    except RecursionError as error:
        raise TemplateError("the chat template calls itself too deeply") from error
    except MemoryError as error:
        raise TemplateError("the chat template used too much memory") from error
    except Exception as error:  # whatever the template's code runs into is the template's error
        known = isinstance(error, jinja2.TemplateError) and str(error)
        reason = _words(str(error)).splitlines()[0] if known else ""
        raise TemplateError(f"the chat template failed: {type(error).__name__} {reason}".rstrip()) from error

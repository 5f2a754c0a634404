"""Published chat templates, and answers cut out of their output."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import SandboxedEnvironment

from jan_serve.chat.template_sandbox import GenerationTag
from jan_serve.core.messages import Tool

VARIABLE = "JAN_SERVE_TEMPLATES"
_ROOT = Path(__file__).parents[4]

# What ends a turn. An engine stops there, so no answer holds it.
_ENDS = (
    "<END> <|im_end|> <|eot_id|> <|eom_id|> <|eot|> <|end_of_text|> <|end_of_msg|> <|call|> <|calls|> <|role_end|>"
    " <|END_OF_TURN_TOKEN|> <|START_OF_TURN_TOKEN|> <|observation|> <|user|> <|tool_response> <end_of_turn> <turn|>"
    " <end_of_sentence> [|endofturn|] <|eom|> <|endoftext|> <|eos|> <seed:eos> <SPECIAL_12> </assistant> [e~[ [RESULT"
).split()
_END = re.compile(
    "|".join(
        (
            *map(re.escape, _ENDS),
            r"\n<\|end\|>",
            r"\n\n<sep>",
            r"<\W(?:end\Wof\Wsentence|hy_eos:opensource)\W>",
            r"<\|message_sep\|>\n\n(?!function call)",
        )
    )
)


class RealTemplate(NamedTuple):
    """A template by its file's name, without the ending."""

    name: str
    source: str


def folder() -> Path:
    """The folder of templates: the one that the environment names, else the one beside the tests."""
    return Path(os.environ.get(VARIABLE) or _ROOT / "tests" / "data" / "chat_templates")


def templates() -> Iterator[RealTemplate]:
    """All of them, by name."""
    for path in sorted(folder().glob("*.jinja")):
        yield RealTemplate(path.stem, path.read_text(encoding="utf-8"))


def _raise(message: object = "") -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _tojson(value: Any, **options: Any) -> str:
    options.setdefault("ensure_ascii", False)
    return json.dumps(
        list(cast(Iterator[object], value)) if isinstance(value, Iterator) else value, **options
    )


def _strftime_now(date_format: str) -> str:
    return datetime(2026, 1, 2, tzinfo=UTC).strftime(date_format)


@cache
def _compiled(source: str) -> jinja2.Template:
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
    )
    names: dict[str, Any] = vars(environment)["globals"]
    names.update(raise_exception=_raise, strftime_now=_strftime_now)
    filters: dict[str, Any] = vars(environment)["filters"]
    filters["tojson"] = _tojson
    return environment.from_string(source)


def render(template: RealTemplate, messages: list[dict[str, Any]], tools: list[Tool], ask: bool) -> str:
    """The text of a conversation; ask: ready for an answer. Raises jinja2.TemplateError, TypeError and others."""
    listed = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]
    return _compiled(template.source).render(
        messages=messages,
        tools=listed or None,
        functions=json.dumps(listed),
        datetime="now",
        add_generation_prompt=ask,
        bos_token="<BEGIN>",
        eos_token="<END>",
        enable_thinking=True,
    )


class WrittenAnswer(NamedTuple):
    """An assistant's turn as written by a template, after the generation prompt."""

    prompt: str
    text: str


def answer_of(
    template: RealTemplate, turn: dict[str, Any], results: list[dict[str, Any]], tools: list[Tool]
) -> WrittenAnswer:
    """The assistant's turn as the template writes it in a history."""
    question = [{"role": "user", "content": "Q"}]
    prompt = render(template, question, tools, ask=True)
    history = render(template, [*question, turn, *results], tools, ask=False)
    # Where the two part in the middle of a tag, the tag belongs to the answer.
    pairs = zip(prompt, history, strict=False)
    same = "".join(one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    same = re.sub(r"<[^>]*$", "", same)
    text = history[len(same) :].removeprefix("<|CHATBOT_TOKEN|>")
    end = _END.search(text)
    return WrittenAnswer(same, text[: end.start()] if end is not None else text)

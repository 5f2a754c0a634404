"""What a chat template says of its model: the answer format, and whether it shows tools, thoughts and calls."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.formats import bare_names, elements, marked_json, messages, own_notations, python_calls

# First signatures unique to one family. A variant comes before the format it derives from.
_ORDER: Final = (
    "gpt-oss muse-glimmer functionary-v3.2 kimi-k3 kimi-k2 solar-open deepseek-v3.2 deepseek-v4 deepseek-v3.1"
    " deepseek-r1 cohere2-moe command-r7b command-r mistral-call-id mistral-args mistral-array gemma4 function-gemma"
    " minimax-m3 minimax-m2 minimax-m1 apertus apriel jamba hunyuan internlm nemotron firefunction gigachat3.1"
    " gigachat3 hunyuan3 minicpm3 lfm2 olmo3 smollm3 minicpm5 seed-oss glm-4.7 glm-4.5 qwen3-coder functionary-v3.1"
    " granite4 granite3.2 granite3 phi4 hermes python-list xlam llama4 llama3 granite-code generic"
)
_KNOWN: Final = {
    each.name: each
    for notation in (bare_names, elements, marked_json, messages, own_notations, python_calls)
    for each in vars(notation).values()
    if isinstance(each, ChatFormat)
}

FORMATS: Final = tuple(_KNOWN[name] for name in _ORDER.split())
"""All formats, in the order they are tried. The last one matches every template."""

CHATML_TURN_END: Final = "<|im_end|>"
"""A model that was not tuned on ChatML has no token for the end of a turn, and writes it as text."""

CHATML: Final = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""The template for models without one: most GGUF files without a template were tuned on it. It shows no tools."""

_CODE: Final = re.compile(r"\{[{%](.*?)[}%]\}", re.DOTALL)
_STRINGS: Final = re.compile(r"'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)", re.DOTALL)
"""Strings of Jinja code. One without an end reaches to the end of the code."""
_TOOL_VARIABLES: Final = re.compile(r"(?<![\w.])(?:tools|functions|xml_tools|available_tools)\b")


@lru_cache(maxsize=128)
def detect_format(template: str | None) -> ChatFormat:
    """The format of a model with this chat template; the generic one if no signature matches. Cached."""
    text = template or ""
    return next(chat_format for chat_format in FORMATS if chat_format.signature.matches(text))


def knows_tools(template: str | None) -> bool:
    """Whether a chat template shows tools to the model. If not, `tool_instructions` must."""
    text = template or ""
    # Behind the last closer no code ends: the pattern would read the rest again from each opener.
    ended = text[: max(text.rfind("}}"), text.rfind("%}")) + 2]
    code = " ".join(match.group(1) for match in _CODE.finditer(ended))
    return _TOOL_VARIABLES.search(_STRINGS.sub('""', code)) is not None


def knows_thoughts(template: str | None) -> bool:
    """Whether a chat template writes thoughts: the model thinks before it answers."""
    thought = detect_format(template).thought
    return thought is not None and thought.is_in(template)


def writes_calls(template: str | None) -> bool:
    """Whether a chat template writes the calls of a history. If not, they must become text."""
    return "tool_calls" in (template or "")

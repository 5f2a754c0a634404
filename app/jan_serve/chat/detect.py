"""What a chat template says of its model: the answer format, and whether it shows tools, thoughts and calls."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.formats import bare_names, elements, marked_json, messages, own_notations, python_calls

FORMATS: Final[tuple[ChatFormat, ...]] = (
    # Signatures unique to one family.
    messages.GPT_OSS,
    messages.MUSE_GLIMMER,
    messages.FUNCTIONARY_V3_2,
    elements.KIMI_K3,
    bare_names.KIMI_K2,
    bare_names.SOLAR_OPEN,
    elements.DEEPSEEK_V3_2,
    elements.DEEPSEEK_V4,
    bare_names.DEEPSEEK_V3_1,
    bare_names.DEEPSEEK_R1,
    marked_json.COHERE2_MOE,
    marked_json.COMMAND_R7B,
    marked_json.COMMAND_R,
    bare_names.MISTRAL_CALL_ID,
    bare_names.MISTRAL_ARGS,
    bare_names.MISTRAL_ARRAY,
    own_notations.GEMMA4,
    own_notations.FUNCTION_GEMMA,
    own_notations.MINIMAX_M3,
    elements.MINIMAX_M2,
    marked_json.MINIMAX_M1,
    marked_json.APERTUS,
    marked_json.APRIEL,
    marked_json.JAMBA,
    marked_json.HUNYUAN,
    marked_json.INTERNLM,
    marked_json.NEMOTRON,
    marked_json.FIREFUNCTION,
    marked_json.GIGACHAT3_1,
    marked_json.GIGACHAT3,
    elements.HUNYUAN3,
    python_calls.MINICPM3,
    python_calls.LFM2,
    python_calls.OLMO3,
    marked_json.SMOLLM3,
    elements.MINICPM5,
    elements.SEED_OSS,
    # A variant comes before the format it derives from.
    elements.GLM_4_7,
    elements.GLM_4_5,
    elements.QWEN3_CODER,
    bare_names.FUNCTIONARY_V3_1,
    marked_json.GRANITE4,
    marked_json.GRANITE3_2,
    marked_json.GRANITE3,
    marked_json.PHI4,
    marked_json.HERMES,
    python_calls.PYTHON_LIST,
    python_calls.XLAM,
    python_calls.LLAMA4,
    python_calls.LLAMA3,
    marked_json.GRANITE_CODE,
    marked_json.GENERIC,
)
"""All formats, in the order they are tried. The last one matches every template."""

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

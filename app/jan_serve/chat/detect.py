"""Detects the answer format of a model from its chat template."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.formats.command_r import COHERE2_MOE, COMMAND_R, COMMAND_R7B
from jan_serve.chat.formats.deepseek import DEEPSEEK_R1, DEEPSEEK_V3_1, DEEPSEEK_V3_2, DEEPSEEK_V4
from jan_serve.chat.formats.function_elements import MINICPM5, QWEN3_CODER, SEED_OSS
from jan_serve.chat.formats.functionary import FUNCTIONARY_V3_1, FUNCTIONARY_V3_2
from jan_serve.chat.formats.gemma import FUNCTION_GEMMA, GEMMA4
from jan_serve.chat.formats.glm4 import GLM_4_5, GLM_4_7, HUNYUAN3
from jan_serve.chat.formats.gpt_oss import GPT_OSS
from jan_serve.chat.formats.hermes import GENERIC, HERMES, SMOLLM3
from jan_serve.chat.formats.kimi import KIMI_K2, KIMI_K3
from jan_serve.chat.formats.marked_json import (
    APERTUS,
    APRIEL,
    FIREFUNCTION,
    GIGACHAT3,
    GIGACHAT3_1,
    GRANITE3,
    GRANITE3_2,
    GRANITE4,
    GRANITE_CODE,
    HUNYUAN,
    INTERNLM,
    JAMBA,
    NEMOTRON,
    PHI4,
)
from jan_serve.chat.formats.minimax import MINIMAX_M1, MINIMAX_M2, MINIMAX_M3
from jan_serve.chat.formats.mistral import MISTRAL_ARGS, MISTRAL_ARRAY, MISTRAL_CALL_ID
from jan_serve.chat.formats.muse_glimmer import MUSE_GLIMMER
from jan_serve.chat.formats.python_calls import LFM2, LLAMA3, LLAMA4, MINICPM3, OLMO3, PYTHON_LIST, XLAM
from jan_serve.chat.formats.solar_open import SOLAR_OPEN

FORMATS: Final[tuple[ChatFormat, ...]] = (
    # Signatures unique to one family.
    GPT_OSS,
    MUSE_GLIMMER,
    FUNCTIONARY_V3_2,
    KIMI_K3,
    KIMI_K2,
    SOLAR_OPEN,
    DEEPSEEK_V3_2,
    DEEPSEEK_V4,
    DEEPSEEK_V3_1,
    DEEPSEEK_R1,
    COHERE2_MOE,
    COMMAND_R7B,
    COMMAND_R,
    MISTRAL_CALL_ID,
    MISTRAL_ARGS,
    MISTRAL_ARRAY,
    GEMMA4,
    FUNCTION_GEMMA,
    MINIMAX_M3,
    MINIMAX_M2,
    MINIMAX_M1,
    APERTUS,
    APRIEL,
    JAMBA,
    HUNYUAN,
    INTERNLM,
    NEMOTRON,
    FIREFUNCTION,
    GIGACHAT3_1,
    GIGACHAT3,
    HUNYUAN3,
    MINICPM3,
    LFM2,
    OLMO3,
    SMOLLM3,
    MINICPM5,
    SEED_OSS,
    # A variant comes before the format it derives from.
    GLM_4_7,
    GLM_4_5,
    QWEN3_CODER,
    FUNCTIONARY_V3_1,
    GRANITE4,
    GRANITE3_2,
    GRANITE3,
    PHI4,
    HERMES,
    PYTHON_LIST,
    XLAM,
    LLAMA4,
    LLAMA3,
    GRANITE_CODE,
    GENERIC,
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

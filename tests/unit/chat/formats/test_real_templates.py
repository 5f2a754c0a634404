"""Templates of published models: format detection, and parsing of the answers that they write in a history."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import jinja2
import pytest

from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.template_traits import traits_of
from jan_serve.chat.tools_as_text import with_tools_as_text
from jan_serve.core.messages import FunctionCall, Message, ToolCall
from tests.unit.chat.formats.answers import TOOLS, parse_everywhere
from tests.unit.chat.formats.real_templates import (
    RealTemplate,
    WrittenAnswer,
    answer_of,
    render,
    templates,
)

FORMATS_FOUND: Final = {
    "Apertus-8B-Instruct": "apertus",
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "Bielik-11B-v3.0-Instruct": "hermes",
    "ByteDance-Seed-OSS": "seed-oss",
    "Cohere2": "command-r",
    "Cohere2MoE": "cohere2-moe",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command-r7b",
    "GLM-4.5": "glm-4.5",
    "GLM-4.6": "glm-4.5",
    "GLM-4.7-Flash": "glm-4.7",
    "GigaChat3-10B-A1.8B": "gigachat3",
    "GigaChat3.1-10B-A1.8B": "gigachat3.1",
    "HuggingFaceTB-Idefics3": "generic",
    "HuggingFaceTB-SmolLM3-3B": "smollm3",
    "Kimi-K2-Instruct": "kimi-k2",
    "Kimi-K2-Thinking": "kimi-k2",
    "Kimi-K3": "kimi-k3",
    "LFM2-2": "lfm2",
    "LFM2-8B-A1B": "lfm2",
    "LFM2.5-2": "lfm2",
    "LFM2.5-8B-A1B": "lfm2",
    "LFM2.5-Instruct": "lfm2",
    "LLaVA-NeXT": "generic",
    "MiMo-VL": "hermes",
    "MiniMax-M1": "minimax-m1",
    "MiniMax-M2": "minimax-m2",
    "MiniMax-M3": "minimax-m3",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-call-id",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
    "NVIDIA-Nemotron-3-Super": "qwen3-coder",
    "NVIDIA-Nemotron-3-Ultra": "qwen3-coder",
    "NVIDIA-Nemotron-3.5-Lightning": "qwen3-coder",
    "NVIDIA-Nemotron-Nano-v2": "nemotron",
    "Naive-N0.5-Flash": "qwen3-coder",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen2.5-VL": "generic",
    "Qwen3-Coder": "qwen3-coder",
    "Qwen3-VL": "hermes",
    "Qwen3.5-4B": "qwen3-coder",
    "Qwen3.6": "qwen3-coder",
    "Qwen3.8": "qwen3-coder",
    "Reka-Edge": "hermes",
    "Spark2.5": "glm-4.7",
    "StepFun3.5-Flash": "qwen3-coder",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek-r1",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1",
    "deepseek-ai-DeepSeek-V3": "deepseek-r1",
    "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4",
    "fireworks-ai-llama-3-firefunction-v2": "firefunction",
    "google-diffusion-gemma": "gemma4",
    "google-gemma-2-2b-it": "generic",
    "google-gemma-3": "generic",
    "google-gemma-4-31B-it": "gemma4",
    "google-gemma-4-31B-it-interleaved": "gemma4",
    "google-gemma-4-E4B-it": "gemma4",
    "ibm-granite-granite-3.3-2B-Instruct": "granite3",
    "ibm-granite-granite-4.0": "granite4",
    "ibm-granite-granite-4.1": "granite4",
    "inclusionai-ling-3.0-flash": "glm-4.5",
    "llama-cpp-deepseek-r1": "deepseek-r1",
    "llama-cpp-rwkv-world": "generic",
    "meetkai-functionary-medium-v3.1": "functionary-v3.1",
    "meetkai-functionary-medium-v3.2": "functionary-v3.2",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3",
    "microsoft-Phi-3.5-mini-instruct": "generic",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-args",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral-array",
    "moonshotai-Kimi-K2": "kimi-k2",
    "muse-glimmer": "muse-glimmer",
    "openai-gpt-oss-120b": "gpt-oss",
    "openbmb-MiniCPM5-1B": "minicpm5",
    "poolside-Laguna-S-2.1": "glm-4.7",
    "poolside-Laguna-XS-2.1": "glm-4.5",
    "poolside-Laguna-XS.2": "glm-4.5",
    "tencent-Hy3": "hunyuan3",
    "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral-args",
    "upstage-Solar-Open-100B": "solar-open",
}

# These do not show tools to the model.
KNOW_NO_TOOLS: Final = {
    "Cohere2",
    "HuggingFaceTB-Idefics3",
    "HuggingFaceTB-SmolLM3-3B",
    "LLaVA-NeXT",
    "Qwen2.5-VL",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3",
    "deepseek-ai-DeepSeek-V3.1",
    "google-gemma-2-2b-it",
    "google-gemma-3",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}

# These do not write a history's calls.
WRITE_NO_CALLS: Final = {
    "Cohere2",
    "HuggingFaceTB-Idefics3",
    "HuggingFaceTB-SmolLM3-3B",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "LLaVA-NeXT",
    "Qwen2.5-VL",
    "google-gemma-2-2b-it",
    "google-gemma-3",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
}

CALLS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("get_weather", {"city": 'Oslo "N"', "days": 2}),
    ("add", {"values": [1, 2.5], "opts": {"k": True}}),
]
TEXT: Final = "Let me look."
REASONING: Final = "I think so."

ALL: Final = list(templates())


def every(found: list[RealTemplate]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("template", found, ids=[template.name for template in found])


@every(ALL)
def test_the_format_of_each_template(template: RealTemplate) -> None:
    assert detect_format(template.source).name == FORMATS_FOUND[template.name]
    assert knows_tools(template.source) == (template.name not in KNOW_NO_TOOLS)
    assert writes_calls(template.source) == (template.name not in WRITE_NO_CALLS)


def _written(template: RealTemplate) -> WrittenAnswer:
    """The first way of putting a turn with calls that the template takes, from the fullest to the barest."""
    contents: list[dict[str, Any]] = [{"content": TEXT}, {"content": ""}, {"content": None}, {}]
    thoughts: list[dict[str, Any]] = [{"reasoning_content": REASONING, "thinking": REASONING}, {}]
    failures: list[str] = []
    for count, as_text, thought, with_results, content in itertools.product(
        (2, 1), (False, True), thoughts, (True, False), contents
    ):
        calls = [
            ToolCall(f"calls{at:04}", FunctionCall(name, "")) for at, (name, _) in enumerate(CALLS[:count])
        ]
        turn = {
            "role": "assistant",
            "tool_calls": [_listed(call, as_text) for call in calls],
            **thought,
            **content,
        }
        results = [
            {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "RESULT"}
            for call in calls
        ]
        try:
            answer = answer_of(template, turn, results if with_results else [], list(TOOLS))
        except (jinja2.TemplateError, TypeError) as error:
            failures.append(str(error))
            continue
        if calls[0].function.name in answer.text:
            return answer
    raise AssertionError(f"the template wrote no call: {failures}")


def _listed(call: ToolCall, as_text: bool) -> dict[str, Any]:
    arguments = dict(CALLS)[call.function.name]
    function = {"name": call.function.name, "arguments": json.dumps(arguments) if as_text else arguments}
    return {"id": call.id, "type": "function", "function": function}


@every([template for template in ALL if template.name not in WRITE_NO_CALLS])
def test_an_answer_written_by_the_template_is_parsed(template: RealTemplate) -> None:
    """Some templates write one call only, some drop text or thought of a turn with calls: what they write is read."""
    chat_format = detect_format(template.source)
    written = _written(template)
    answer = parse_everywhere(
        chat_format, written.text, starts_in_thought=chat_format.prompt_opens_thought(written.prompt)
    )
    assert answer.values() == [call for call in CALLS if call[0] in written.text]
    assert answer.text == (TEXT if TEXT in written.text and answer.reasoning != TEXT else "")
    assert answer.reasoning in (REASONING if REASONING in written.text else "", TEXT)


@every([template for template in ALL if template.name in WRITE_NO_CALLS])
def test_tools_become_text_if_the_template_does_not_show_them(template: RealTemplate) -> None:
    chat_format = detect_format(template.source)
    history = (
        Message(role="user", content="Q"),
        Message(
            role="assistant",
            content=TEXT,
            tool_calls=tuple(
                ToolCall(f"calls{at:04}", FunctionCall(name, "{}")) for at, (name, _) in enumerate(CALLS)
            ),
        ),
        Message(role="tool", content="RESULT 1", tool_call_id="calls0000"),
        Message(role="tool", content="RESULT 2", tool_call_id="calls0001"),
    )
    folded = with_tools_as_text(history, TOOLS, chat_format, calls_too=True)
    assert [message.role for message in folded] == ["system", "user", "assistant", "user"]
    plain: list[dict[str, Any]] = [{"role": message.role, "content": message.content} for message in folded]
    if template.name == "google-gemma-2-2b-it":  # it takes no system message
        plain = [{"role": "user", "content": f"{plain[0]['content']}\n\nQ"}, *plain[2:]]
    if traits_of(template.source).list_content:
        plain = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in plain]
    text = render(template, plain, [], ask=True)
    assert all(part in text for part in ("get_weather", "RESULT 1", "RESULT 2", TEXT))
    turn = str(folded[2].content)
    answer = parse_everywhere(chat_format, turn)
    assert (answer.text, [name for name, _ in answer.values()]) == (TEXT, [name for name, _ in CALLS])

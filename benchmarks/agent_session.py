"""Ten requests of a coding agent, in the form and sizes that Claude Code 2.1 sends; the texts are ours.

agent_tools.json has the schemas of its 24 tools, and the length of each description.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.load import words

TURNS: Final = 10
_TOOLS: Final = Path(__file__).with_name("agent_tools.json")
_SYSTEM_CHARS: Final = 5_600
_REMINDER_CHARS: Final = 6_200
_RESULT_CHARS: Final = 800
_BILLING: Final = "x-anthropic-billing-header: cc_version=2.1.197.1c0; cc_entrypoint=sdk-cli; cch={:05x};"
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}


def agent_tools(share: float = 1.0) -> list[dict[str, Any]]:
    """The 24 tools. share: of the length of their descriptions."""
    tools: list[dict[str, Any]] = json.loads(_TOOLS.read_text(encoding="utf-8"))
    return [
        {
            "name": tool["name"],
            "description": _text(number, int(tool["description_chars"] * share)),
            "input_schema": tool["input_schema"],
        }
        for number, tool in enumerate(tools)
    ]


def agent_requests(
    model: str, seed: int, *, share: float = 1.0, max_tokens: int = 16
) -> list[dict[str, Any]]:
    """The bodies, each with the turns of those before it. share: of the length of all texts."""
    tools = agent_tools(share)
    system = [_text(seed, int(_SYSTEM_CHARS * share)), _text(seed + 1, 60)]
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [_block(_text(seed + 2, 300)), {**_block("Mend the failing test."), **_CACHED}],
        },
        {"role": "system", "content": _text(seed + 3, int(_REMINDER_CHARS * share))},
    ]
    bodies: list[dict[str, Any]] = []
    for turn in range(TURNS):
        billing = _BILLING.format((seed * TURNS + turn) * 7919 % (1 << 20))
        bodies.append(
            {
                "model": model,
                "max_tokens": max_tokens,
                "system": [_block(billing), *({**_block(text), **_CACHED} for text in system)],
                "messages": [*messages],
                "tools": tools,
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high"},
                "metadata": {"user_id": "{}"},
            }
        )
        call_id = f"toolu_{seed:012d}{turn:012d}"
        arguments = {"file_path": f"/home/user/project/file_{turn}.py"}
        call = {"type": "tool_use", "id": call_id, "name": "Read", "input": arguments}
        read = _text(seed + 10 + turn, int(_RESULT_CHARS * share))
        result = {"type": "tool_result", "tool_use_id": call_id, "content": read}
        messages += [
            {"role": "assistant", "content": [_block("Let me read the next file."), call]},
            {"role": "user", "content": [result]},
        ]
    return bodies


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _text(seed: int, length: int) -> str:
    return words(seed, length // 5 + 1)[:length]

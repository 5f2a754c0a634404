"""`kill -9` of the whole server: what its journal has goes on in the next one."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from jan_serve.resources import builtin_model
from tests.support.clients.response_events import Event, events_of
from tests.support.processes import wait_until
from tests.support.servers.served import serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(builtin_model() is None, reason="there is no built-in model"),
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]

FLAGS: Final = ("--port", "0")
QUESTION: Final[dict[str, Any]] = {
    "input": "Count.", "temperature": 0, "max_output_tokens": 2500,
    "text": {"format": {"type": "regex", "pattern": "[a-z ]{2000}"}},
}  # fmt: skip
RESPONSES: Final = "/v1/responses"
CHAT: Final = "/v1/chat/completions"


def text_of(response: Event) -> str:
    return response["output"][0]["content"][0]["text"]


def stream_of(client: httpx.Client, answer_id: str, after: int | None = None) -> list[Event]:
    query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    return events_of(client.get(f"{RESPONSES}/{answer_id}", params=query).raise_for_status().text)


def test_a_background_answer_goes_on_from_its_last_token_after_kill_9(tmp_path: Path) -> None:
    seen: list[Event] = []
    with serving(tmp_path, *FLAGS) as served, httpx.Client(base_url=served.url(), timeout=60) as client:
        undisturbed = text_of(client.post(RESPONSES, json=QUESTION).raise_for_status().json())
        answer_id = client.post(RESPONSES, json={**QUESTION, "background": True}).json()["id"]
        with client.stream("GET", f"{RESPONSES}/{answer_id}?stream=true") as answer:
            text = ""
            for piece in answer.iter_text():
                text += piece
                if "output_text.delta" in text:
                    break
            served.process.kill()
            served.wait()
        seen = events_of(text[: text.rindex("\n\n") + 2])
    assert seen[-1]["type"] not in ("response.completed", "response.incomplete"), "it was killed too late"
    with serving(tmp_path, *FLAGS) as served, httpx.Client(base_url=served.url(), timeout=60) as client:
        rest = stream_of(client, answer_id, seen[-1]["sequence_number"])
        whole = stream_of(client, answer_id)
        response = client.get(f"{RESPONSES}/{answer_id}").json()
    assert whole == [*seen, *rest]
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert text_of(response) == undisturbed
    assert "".join(e["delta"] for e in whole if e["type"] == "response.output_text.delta") == undisturbed


def test_each_line_of_a_batch_is_answered_once_over_three_kills(tmp_path: Path) -> None:
    rows = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": CHAT,
            "body": {
                "messages": [
                    {"role": "system", "content": f"Rule {number % 4}. " * 20},
                    {"role": "user", "content": f"Count from {number}."},
                ],
                "max_tokens": 12,
            },
        }
        for number in range(40)
    ]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    batch_id = ""
    for done in (8, 16, 24):
        with serving(tmp_path, *FLAGS) as served, httpx.Client(base_url=served.url(), timeout=60) as client:
            if not batch_id:
                form: Any = {"files": {"file": ("a.jsonl", content)}, "data": {"purpose": "batch"}}
                file_id = client.post("/v1/files", **form).raise_for_status().json()["id"]
                body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
                batch_id = client.post("/v1/batches", json=body).raise_for_status().json()["id"]
            _wait_for(client, batch_id, done)
            served.process.kill()
            served.wait()
    with serving(tmp_path, *FLAGS) as served, httpx.Client(base_url=served.url(), timeout=60) as client:
        wait_until(lambda: client.get(f"/v1/batches/{batch_id}").json()["status"] == "completed", 60)
        batch = client.get(f"/v1/batches/{batch_id}").json()
        assert batch["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
        answers = client.get(f"/v1/files/{batch['output_file_id']}/content").text.splitlines()
    ids = Counter(json.loads(line)["custom_id"] for line in answers)
    assert ids == Counter(str(number) for number in range(40))


def _wait_for(client: httpx.Client, batch_id: str, lines: int) -> None:
    def are_done() -> bool:
        counts = client.get(f"/v1/batches/{batch_id}").json()["request_counts"]
        return counts["completed"] + counts["failed"] >= lines

    wait_until(are_done, 60)

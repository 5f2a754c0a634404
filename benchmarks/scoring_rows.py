"""Rows for reranking and for many questions on one text. The peer is a llama-server of the same llama.cpp."""

from __future__ import annotations

import statistics
import time
from typing import Final

from benchmarks.figures import Figures, Skipped
from benchmarks.load import words
from benchmarks.servers import Refused, Running

_CANNOT_RANK: Final = (400, 501)
DOCUMENTS: Final = 100
QUESTIONS: Final = 50
_ASKED: Final = "Answer with exactly one of these options and nothing else:\n- yes\n- no"


def rerank_100(server: Running, seed: int) -> Figures:
    """One query with a hundred documents of 15 words, which are in no cache. Needs a model that ranks."""
    try:
        _rank(server, seed + 500, 4)
    except Refused as error:
        if error.status in _CANNOT_RANK:
            raise Skipped("the model does not rank") from error
        raise
    before, start = server.cpu_seconds(), time.perf_counter()
    _rank(server, seed, DOCUMENTS)
    return {"wall_s": time.perf_counter() - start, "cpu_s": server.cpu_seconds() - before}


def _rank(server: Running, seed: int, count: int) -> None:
    documents = [words(seed * 1000 + number, 15) for number in range(count)]
    reply = server.post("/v1/rerank", {"query": words(seed, 10), "documents": documents})
    if len(reply["results"]) != count:
        raise RuntimeError(f"{server.name} ranked {len(reply['results'])} of {count} documents")


def questions_50(server: Running, seed: int) -> Figures:
    """Fifty questions on a text of about 2,000 tokens that is in no cache.

    This server: one request. Others: fifty chats, one after the other, each for one token with the probabilities of the
    most probable ones. `reused_s`: they may keep the text from one request to the next. `wall_s`: they may not; the
    time of three is counted for all. `cpu_s`, `reused_cpu_s`: CPU time of the server, which other programs change less.
    """
    questions = [f"{words(seed * 100 + number, 6)}?" for number in range(QUESTIONS)]
    text, other = words(seed * 1000, 620), words(seed * 1000 + 1, 620)
    if server.name == "jan-serve":
        asked = {str(number): {"question": each, "type": "yes_no"} for number, each in enumerate(questions)}
        server.post("/v1/decide", {"state": "warm", "questions": {"0": asked["0"]}})
        before, start = server.cpu_seconds(), time.perf_counter()
        reply = server.post("/v1/decide", {"state": text, "questions": asked})
        took = time.perf_counter() - start
        cpu = server.cpu_seconds() - before
        return {
            "wall_s": took,
            "reused_s": took,
            "cpu_s": cpu,
            "reused_cpu_s": cpu,
            "tokens": reply["usage"]["prompt_tokens"],
        }
    _ask(server, "warm", questions[0], reuse=True)
    before, start = server.cpu_seconds(), time.perf_counter()
    for question in questions:
        _ask(server, text, question, reuse=True)
    reused = time.perf_counter() - start
    reused_cpu = server.cpu_seconds() - before
    before = server.cpu_seconds()
    alone: list[float] = []
    for question in questions[:3]:
        start = time.perf_counter()
        _ask(server, other, question, reuse=False)
        alone.append(time.perf_counter() - start)
    cpu = (server.cpu_seconds() - before) * QUESTIONS / len(alone)
    return {
        "wall_s": QUESTIONS * statistics.mean(alone),
        "reused_s": reused,
        "cpu_s": cpu,
        "reused_cpu_s": reused_cpu,
    }


def _ask(server: Running, text: str, question: str, *, reuse: bool) -> None:
    body = {
        "messages": [{"role": "user", "content": f"{text}\n\n{question}\n{_ASKED}"}],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 20,
        "cache_prompt": reuse,
    }
    server.post("/v1/chat/completions", body)

"""A prompt that does not fit makes the context longer: nothing is read again, and answers are those of a longer one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.errors import ContextLengthExceeded
from jan_serve.ipc.messages import Chunk
from models.recipe import fixtures
from models.recipe.mtp_fixtures import write_tiny_mtp, write_tiny_recurrent_mtp
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

BUILT_IN: Final = Path("models/builtin/jan-tiny.gguf")
SHORT: Final = 512
LONG: Final = 4096
STORIES: Final = [
    " ".join(f"{word} {n} water door" for n in range(20)) for word in ("house", "people", "great")
]
TOO_LONG: Final = " ".join(f"large {n * 7 % 50} think" for n in range(200))
IDS: Final = [100 + n * 7 % 97 for n in range(900)]
WRITERS: Final[dict[str, Callable[..., object]]] = {
    "attention": fixtures.write_tiny_llama,
    "recurrent": fixtures.write_tiny_recurrent,
    "hybrid": fixtures.write_tiny_hybrid,
    "window": fixtures.write_tiny_sliding,
    "head": write_tiny_mtp,
    "recurrent head": write_tiny_recurrent_mtp,
}
NO_TIERS: Final = {"cache_ram_bytes": 0, "cache_disk_bytes": 0}
LITTLE_RAM: Final = {"cache_ram_bytes": 1 << 16}


def turns(worker: Worker, lengths: list[int]) -> list[tuple[str, int, int]]:
    """A conversation of growing prompts: of each turn its answer, tokens that were cached, and tokens computed."""
    found: list[tuple[str, int, int]] = []
    prompt = ""
    for length in lengths:
        while len(prompt.split()) < length:
            prompt += f" water {len(prompt) % 97} house door"
        before = worker.stats().computed_tokens_total
        result = worker.run_one(prompt, max_tokens=12, ignore_eos=True)
        computed = worker.stats().computed_tokens_total - before
        found.append((result.text, result.usage.cached_tokens, computed))
        prompt += result.text
    return found


def test_a_conversation_grows_from_2048_to_16384_tokens_and_reads_nothing_again(tmp_path: Path) -> None:
    model = tmp_path / "long.gguf"
    fixtures.write_tiny_llama(model, n_ctx=16384, quantize=False)
    lengths = [200, 400, 1200, 2400, 4000]
    with running_worker(model, n_ctx=2048, grow_context=True) as worker:
        found = turns(worker, lengths)
        assert worker.stats().cells_total == 16384
    with running_worker(model, n_ctx=16384) as worker:
        assert found == turns(worker, lengths)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, {}) for kind in WRITERS),
        ("attention", NO_TIERS),
        ("hybrid", NO_TIERS),
        ("window", LITTLE_RAM),
    ],
    ids=str,
)
def test_running_answers_go_on_in_the_longer_context(
    model_folder: Path, kind: str, settings: dict[str, Any]
) -> None:
    path = model_folder / f"growing {kind}.gguf"
    if not path.exists():
        WRITERS[kind](path, n_ctx=LONG, quantize=False)
    options = {"parallel": 4, "prompt_lookup": "off", **settings, **EXACT}
    answers: list[list[str]] = []
    computed: list[int] = []
    for n_ctx, grow in ((SHORT, True), (LONG, False)):
        mtp = "on" if "head" in kind else "off"
        with running_worker(path, n_ctx=n_ctx, grow_context=grow, mtp=mtp, **options) as worker:
            first = [generate(story, max_tokens=60, ignore_eos=True) for story in STORIES[:2]]
            for request in first:
                worker.send(request)
            while not all(worker.results[request.id].choices for request in first):
                worker.advance()
            long = worker.run_one(IDS, max_tokens=20, ignore_eos=True, return_tokens=True)
            while not all(worker.results[request.id].is_over for request in first):
                worker.advance()
            written = [token for event in long.events if isinstance(event, Chunk) for token in event.ids]
            again = worker.run_one([*IDS, *written, *IDS[:9]], max_tokens=8, ignore_eos=True)
            assert again.usage.cached_tokens >= len(IDS) + 19
            stats = worker.stats()
            assert stats.cells_total == (1024 if grow else LONG)
            answers.append([*(worker.results[request.id].text for request in first), long.text, again.text])
            computed.append(stats.computed_tokens_total)
    assert answers[0] == answers[1]
    assert "head" in kind or computed[0] == computed[1], "a prompt was read again"


def test_a_draft_model_grows_too() -> None:
    draft: dict[str, Any] = {"draft_path": str(BUILT_IN), "prompt_lookup": "on"}
    found: list[tuple[str, bool]] = []
    for n_ctx, grow in ((SHORT, True), (2048, False)):
        with running_worker(BUILT_IN, n_ctx=n_ctx, grow_context=grow, **draft) as worker:
            worker.run_one(STORIES[0], max_tokens=20)
            before = worker.stats().accepted_by_model_total
            text = worker.run_one(TOO_LONG, max_tokens=60, ignore_eos=True).text
            found.append((text, worker.stats().accepted_by_model_total > before))
    assert found[0] == found[1]
    assert found[0][1], "the draft model drafts beyond the first context"


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, "set grow_context = true (--grow-context)"),
        ({"grow_context": True}, "it grows to 512 tokens at most"),
        (
            {"grow_context": True, "n_ctx": 256, "context_bytes": 1000, "k_elements": 64},
            "A context of 512 tokens needs",
        ),
    ],
    ids=["off", "as long as trained", "no memory"],
)
def test_a_prompt_that_still_does_not_fit_says_what_to_do(
    exact_llama: Path, settings: dict[str, Any], remedy: str
) -> None:
    with running_worker(exact_llama, **{"n_ctx": 512, **settings, **EXACT}) as worker:
        limit = settings.get("n_ctx", 512)
        fits = worker.run_one(STORIES[1][:100], max_tokens=4)
        error = worker.run_one(IDS[: limit + 1], max_tokens=4).error
        assert isinstance(error, ContextLengthExceeded)
        assert remedy in error.message
        assert error.n_ctx == limit
        assert worker.run_one(STORIES[1][:100], max_tokens=4).text == fits.text, "the context serves on"

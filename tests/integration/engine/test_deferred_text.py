"""Text that is made while a device computes the next step: the same events in the same order.

The CPU stands for the device: LlamaContext.decode goes on meanwhile there too, after it has computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.core.constraint import CompiledGrammar, Guide, ThoughtGuide, Trigger
from jan_serve.core.request import RepetitionDetection
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.engine import Engine
from jan_serve.engine.intake import Intake
from jan_serve.engine.llama import backend
from jan_serve.engine.loading.loader import LoadedModel, load
from jan_serve.engine.sampler import Sampled
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokenizing import finish
from jan_serve.errors import GrammarTooComplex
from jan_serve.ipc.messages import EngineEvent, EngineSettings, LoadModel
from tests.support.clock import TurnedClock
from tests.support.engine.worker import generate
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

TEXT = "The people said that water was great and every good house has a large door."
GRAMMAR = CompiledGrammar(lark='start: ("ab" /[0-9]/ " cd ")+')
SHORT = CompiledGrammar(lark='start: /[a-c]/ "xyz" /[0-9]{3}/')
THOUGHT = ThoughtGuide(opens=("<think>",), closes=("</think>",), is_open=True, budget=5)
_FAILING = 23
"""The last choice of a request for so many tokens fails after some of them."""
KINDS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"n": 2, "temperature": 1.0, "seed": 3, "return_tokens": True},
    {"temperature": 0.7, "seed": 5, "repeat_penalty": 1.1},
    {"logprobs": 2},
    {"prompt_logprobs": 1, "n": 2},
    {"return_tokens": True, "stop_token_ids": tuple(range(60, 320, 3)), "temperature": 1.0, "seed": 8},
    {"stop": ("e", "th", "Ġ"), "temperature": 1.0, "seed": 2},
    {"max_decode_s": 0.01, "temperature": 1.0, "seed": 4},
    {"reports_progress": True},
    {"repetition_detection": RepetitionDetection(max_pattern_size=20, min_count=2)},
    {"guide": Guide(grammar=GRAMMAR)},
    {"guide": Guide(grammar=SHORT), "n": 2, "temperature": 1.0, "seed": 1},
    {"n": 2, "max_tokens": _FAILING},
    {"guide": Guide(thought=THOUGHT, grammar=SHORT), "temperature": 1.0, "seed": 7},
    {"guide": Guide(triggers=(Trigger("e", GRAMMAR),)), "temperature": 1.0, "seed": 9},
    {"background": True},
]


class Drawn(NamedTuple):
    """A request that comes before a step, and perhaps is aborted before another one."""

    kind: int
    comes: int
    aborted: int | None
    max_tokens: int


drawn_requests = st.builds(
    Drawn,
    st.integers(0, len(KINDS) - 1),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(1, 40)),
    st.integers(1, 24),
)


@pytest.fixture(scope="module")
def loaded(exact_llama: Path) -> Generator[LoadedModel]:
    backend.start()
    resolved = EngineSettings(n_ctx=512, parallel=3, cache_sequences=3, **EXACT)
    loaded = load(LoadModel(path=str(exact_llama), settings=resolved), lambda _fraction: True)
    yield loaded
    assert loaded.context is not None
    loaded.context.close()


class Run:
    """The frames of each request, and how many steps were sent while the next one was computed."""

    def __init__(self, loaded: LoadedModel, drawn: list[Drawn], *, defers: bool, lookup: str) -> None:
        context, self._clock = loaded.context, TurnedClock()
        assert context is not None
        context.clear()
        self.events: dict[int, list[bytes]] = defaultdict(list)
        self.num_early = 0
        self._aborted: set[int] = set()
        phase = PhaseClock(self._clock)
        resolved = msgspec.structs.replace(loaded.settings, prompt_lookup=lookup)
        engine = Engine(
            _timed(context, self._clock),
            resolved,
            phase=phase,
            states=StateCache(1 << 20),
            send=self._send_early if defers else None,
        )
        intake = Intake(loaded.model.vocab, resolved, n_ctx=512)
        step = 0
        while engine.has_work or any(each.comes >= step for each in drawn):
            for number, each in enumerate(drawn):
                if each.comes == step:
                    fields = {"ignore_eos": "grammar" not in KINDS[each.kind], **KINDS[each.kind]}
                    fields = {"max_tokens": each.max_tokens, **fields}
                    request = generate(f"{TEXT} {TEXT} {number % 2}", **fields)
                    sequences = finish(intake.prepare(msgspec.structs.replace(request, id=number)))
                    sequences[0].state.arrived = self._clock()
                    if fields["max_tokens"] == _FAILING:
                        _fail_after(sequences[-1].sampler, each.max_tokens)
                    engine.add(sequences)
                if each.aborted == step:
                    engine.abort(number)
                    self._aborted.add(number)
            if engine.can_step:
                self._keep(engine.step())
            self._aborted -= {number for number, each in enumerate(drawn) if each.comes > step}
            step += 1

    def _send_early(self, events: list[EngineEvent]) -> None:
        self.num_early += 1
        self._keep(events)

    def _keep(self, events: list[EngineEvent]) -> None:
        for event in events:
            assert event.id not in self._aborted
            self.events[event.id].append(msgspec.msgpack.encode(event))


def _fail_after(sampler: Any, count: int) -> None:
    sample = sampler.sample

    def failing(logits: Any) -> Sampled:
        nonlocal count
        count -= 1
        if count < 0:
            raise GrammarTooComplex("no token", param="grammar")
        return sample(logits)

    sampler.sample = failing


def _timed(context: Any, clock: TurnedClock) -> Any:
    """The context, whose decodes turn the clock: the only time that passes."""

    class Timed:
        def __getattr__(self, name: str) -> Any:
            return getattr(context, name)

        def decode(self, batch: Any, *others: Any) -> int:
            clock.turn(0.001 * (4 + batch.size))
            return context.decode(batch, *others)

    return Timed()


@settings(max_examples=200)
@given(st.lists(drawn_requests, min_size=1, max_size=5), st.sampled_from(["off", "on"]))
def test_events_are_the_same(loaded: LoadedModel, drawn: list[Drawn], lookup: str) -> None:
    plain, deferring = (Run(loaded, drawn, defers=defers, lookup=lookup) for defers in (False, True))
    for number, each in enumerate(drawn):
        expected, found = plain.events[number], deferring.events[number]
        if each.aborted is None:
            assert found == expected, KINDS[each.kind]
        else:
            # An abort drops what waits: the text of one step.
            assert found == expected[: len(found)]
    assert plain.num_early == 0


def test_most_text_is_sent_early(loaded: LoadedModel) -> None:
    """All but that of the first step and the last one, and but tokens that end within a character."""
    assert 12 <= Run(loaded, [Drawn(0, 0, None, 20)], defers=True, lookup="off").num_early <= 18

"""These tests apply the profile of a model: its chat template and its defaults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from jan_serve.chat.chatml import CHATML
from jan_serve.core.messages import Message
from jan_serve.core.models import AdapterFacts
from jan_serve.core.request import (
    LOOPS,
    AdapterChoice,
    ChatPrompt,
    GenerationRequest,
    RepetitionDetection,
    SamplingParams,
    StopConditions,
    TextPrompt,
)
from jan_serve.errors import AdapterNotFound, InvalidRequest, JanServeError, TemplateError, error_from_payload
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.profiles import ModelProfile, TemplateOverride, template_of, with_defaults
from jan_serve.ipc.messages import AdapterUse
from tests.support.engine.fake_client import FakeClient, fake_facts
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline

pytestmark = pytest.mark.anyio

DEFAULTS = {"temperature": 0.25, "top_k": 3, "seed": 9, "max_tokens": 7, "stop": ("x",)}
SET = {"sampling": SamplingParams(temperature=0.5), "stopping": StopConditions(max_tokens=40)}


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(prompt=TextPrompt("a"), **SET, **fields)


@pytest.mark.parametrize(
    ("given", "sampling", "stopping"),
    [
        (None, SET["sampling"], SET["stopping"]),
        (
            frozenset[str](),
            SamplingParams(temperature=0.25, top_k=3, seed=9),
            StopConditions(max_tokens=7, stop=("x",)),
        ),
        (
            frozenset({"temperature", "stop", "unrelated"}),
            SamplingParams(temperature=0.5, top_k=3, seed=9),
            StopConditions(max_tokens=7),
        ),
        (frozenset(DEFAULTS), SET["sampling"], SET["stopping"]),
    ],
)
def test_defaults_fill_in_what_was_not_said(
    given: frozenset[str] | None, sampling: SamplingParams, stopping: StopConditions
) -> None:
    filled = with_defaults(request(given=given), ModelProfile(defaults=DEFAULTS))
    assert (filled.sampling, filled.stopping) == (sampling, stopping)


ADAPTED = fake_facts(adapters=(AdapterFacts("sql", 1.0), AdapterFacts("Poet", 0.5), AdapterFacts("off", 0.0)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("nope", r"`fake` has no LoRA adapter `nope`; it has sql, Poet, off"),
        (3, "has no LoRA adapter `3`"),
        (-1, "has no LoRA adapter `-1`"),
        ("x" * 500, "x{64}`"),
    ],
)
def test_an_unknown_adapter_is_refused(asked: str | int, message: str) -> None:
    client = FakeClient(facts=ADAPTED)
    with pytest.raises(AdapterNotFound, match=message) as caught:
        chosen_adapters((AdapterChoice(asked),), client)
    assert caught.value.param == "lora"
    restored = error_from_payload(caught.value.code, caught.value.payload())
    assert (type(restored), restored.message) == (AdapterNotFound, caught.value.message)


@pytest.mark.parametrize(
    "asked",
    [
        (AdapterChoice("sql"), AdapterChoice(0)),
        (AdapterChoice("sql", 100.5),),
        (AdapterChoice("sql", float("nan")),),
    ],
)
def test_adapters_that_cannot_be(asked: tuple[AdapterChoice, ...]) -> None:
    with pytest.raises(InvalidRequest, match="lora"):
        chosen_adapters(asked, FakeClient(facts=ADAPTED))
    with pytest.raises(AdapterNotFound, match="it has none"):
        chosen_adapters(asked, FakeClient())


async def test_the_engine_is_told() -> None:
    profile = ModelProfile(template=TemplateOverride("t", "<{{ messages[0].content }}>"), defaults=DEFAULTS)
    chat = ChatPrompt(messages=(Message(role="user", content="Hi"),))
    preparer = RequestPreparer(
        GrammarCache(translate_inline),
        render_inline,
        now=lambda: datetime(2026, 3, 4, tzinfo=UTC),
        profiles=lambda: lambda model, requested: {"fake": profile}[model],
    )
    asked = GenerationRequest(prompt=chat, given=frozenset({"seed"}), sampling=SamplingParams(seed=1))
    prepared = await preparer.prepare(asked, FakeClient(facts=ADAPTED, adapter="poet"), "")
    with pytest.raises(JanServeError):
        await preparer.prepare(request(adapters=(AdapterChoice("x"),)), FakeClient(facts=ADAPTED), "")
    submitted = prepared.submitted
    assert submitted.prompt == ("<Hi>",)
    assert (submitted.sampling.temperature, submitted.sampling.top_k, submitted.sampling.seed) == (0.25, 3, 1)
    assert submitted.stopping == StopConditions(max_tokens=7, stop=("x",))
    assert submitted.adapters == (AdapterUse(1, 0.5),)


BOTH = {"default": "D", "tool_use": "T", "rag": "R"}


@pytest.mark.parametrize(
    ("templates", "override", "with_tools", "source"),
    [
        (BOTH, None, False, "D"),
        (BOTH, None, True, "T"),
        ({"default": "D"}, None, True, "D"),
        ({}, None, True, None),
        (BOTH, TemplateOverride("rag"), True, "R"),
        (BOTH, TemplateOverride("file.jinja", "F"), True, "F"),
        (BOTH, TemplateOverride("rag", ""), False, ""),
        (BOTH, TemplateOverride("chatml"), False, CHATML),
        ({"chatml": "own"}, TemplateOverride("chatml"), False, "own"),
    ],
)
def test_the_template(
    templates: dict[str, str], override: TemplateOverride | None, with_tools: bool, source: str | None
) -> None:
    assert template_of("m", templates, override, with_tools=with_tools) == source


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(TemplateError, match=r"'rga' .* for m .* chatml, default, rag, tool_use"):
        template_of("m", BOTH, TemplateOverride("rga"), with_tools=False)


@pytest.mark.parametrize("given", [None, frozenset[str](), frozenset({"temperature"})])
def test_loops_are_stopped_unless_the_request_says_otherwise(given: frozenset[str] | None) -> None:
    for action, detection in LOOPS.items():
        profile = ModelProfile(stop_loops=action)
        found = with_defaults(request(given=given), profile).stopping
        assert found == msgspec.structs.replace(SET["stopping"], repetition_detection=detection)
    own = RepetitionDetection(max_pattern_size=3, min_count=5)
    stopping = StopConditions(repetition_detection=own)
    asked = GenerationRequest(prompt=TextPrompt("a"), stopping=stopping, given=given)
    assert with_defaults(asked, ModelProfile(stop_loops="end")).stopping == stopping
    refused = request(given=frozenset({"repetition_detection"}))
    assert with_defaults(refused, ModelProfile(stop_loops="end")) == refused

"""What becomes of a request before it is submitted to an engine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jan_serve.chat.formats.messages import GPT_OSS
from jan_serve.core.constraint import Guide, JsonSchemaConstraint, RegexConstraint
from jan_serve.core.events import Finished, TextDelta
from jan_serve.core.messages import FunctionCall, ImagePart, Message, TextPart, Tool, ToolCall
from jan_serve.core.models import SpecialToken
from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
    InfillPrompt,
    PartsPrompt,
    SamplingParams,
    StopConditions,
    TextPrompt,
    TokenPrompt,
)
from jan_serve.errors import InvalidRequest, JanServeError, UnsupportedContent, UnsupportedOperation
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.generation.prepare import RANDOM_SEED_BITS, PreparedRequest, RequestPreparer, draw_seed
from jan_serve.generation.profiles import ModelProfile, TemplateOverride
from jan_serve.ipc.messages import EngineRequest
from tests.support.engine.fake_client import FakeClient, fake_facts
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.unit.generation.support import preparer

pytestmark = pytest.mark.anyio

SHOWS_ALL = "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
HERMES = SHOWS_ALL + "{% for tool in tools %}<tool_call>{{ tool.function.parameters | tojson }}{% endfor %}"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def text_request(text: str = "once", **fields: Any) -> GenerationRequest:
    return GenerationRequest(prompt=TextPrompt(text), **fields)


def chat(*contents: str, **fields: Any) -> ChatPrompt:
    return ChatPrompt(messages=tuple(Message(role="user", content=content) for content in contents), **fields)


def client_of(template: str | None = SHOWS_ALL, **facts: Any) -> FakeClient:
    templates = {} if template is None else {"default": template}
    return FakeClient(facts=fake_facts(chat_templates=templates, **facts))


def preparer_of(**options: Any) -> RequestPreparer:
    now = datetime(2026, 3, 4, tzinfo=UTC)
    return RequestPreparer(GrammarCache(translate_inline), render_inline, now=lambda: now, **options)


async def prepared(request: GenerationRequest, client: FakeClient | None = None) -> PreparedRequest:
    return await preparer().prepare(request, client or client_of(), "")


async def submitted(request: GenerationRequest, client: FakeClient | None = None) -> EngineRequest:
    return (await prepared(request, client)).submitted


# Prompts


async def test_what_is_submitted_for_a_text() -> None:
    request = text_request(
        sampling=SamplingParams(temperature=0.0, seed=5, logit_bias={7: 1.5}),
        stopping=StopConditions(max_tokens=3, stop=("x",)),
        skip_special_tokens=False,
    )
    found = await prepared(request)
    sent = found.submitted
    assert (sent.prompt, sent.add_special, sent.parse_special, sent.prompt_param) == (
        ("once",),
        True,
        True,
        "prompt",
    )
    assert (sent.sampling, sent.stopping) == (request.sampling, request.stopping)
    assert (sent.skip_special_tokens, sent.guide, sent.visible_specials) == (False, None, ())
    assert found.parsers is None and found.warnings == ()


async def test_control_tokens_of_the_models_format_stay_in_the_text() -> None:
    client = client_of("<|start|>assistant<|channel|>final<|message|>")
    found = await preparer_of().prepare(GenerationRequest(prompt=chat("Hi")), client, "")
    assert found.submitted.visible_specials == GPT_OSS.special_tokens


async def test_token_ids_are_used_as_they_are() -> None:
    sent = await submitted(GenerationRequest(prompt=TokenPrompt((1, 2), param="input_ids")))
    assert (sent.prompt, sent.add_special, sent.prompt_param) == (((1, 2),), False, "input_ids")


async def test_a_missing_template_is_logged_once_a_model(caplog: pytest.LogCaptureFixture) -> None:
    one = preparer()
    for client in (client_of(None), client_of(None), FakeClient(name="other")):
        sent = await one.prepare(GenerationRequest(prompt=chat("Hi")), client, "")
        assert str(sent.submitted.prompt[0]).startswith("<|im_start|>user\nHi<|im_end|>")
    words = "has no chat template: chats are rendered as ChatML"
    assert [record.message for record in caplog.records] == [f"fake {words}", f"other {words}"]


@pytest.mark.parametrize(
    ("stopping", "stops", "told"),
    [
        (StopConditions(), ("<|im_end|>",), None),
        (StopConditions(stop=("x",)), ("x", "<|im_end|>"), None),
        (StopConditions(stop=("<|im_end|>",)), ("<|im_end|>",), "<|im_end|>"),
        (StopConditions(ignore_eos=True), (), "<|im_end|>"),
        (StopConditions(include_stop=True), (), "<|im_end|>"),
        (StopConditions(stop_at_token_end=True), (), "<|im_end|>"),
    ],
)
@pytest.mark.parametrize("template", [None, "chatml"])
async def test_a_turn_of_chatml_ends_at_its_text_where_the_model_has_no_token(
    template: str | None, stopping: StopConditions, stops: tuple[str, ...], told: str | None
) -> None:
    """It is no stop string to the client: a base model ends its turn."""
    profile = ModelProfile(template=None if template is None else TemplateOverride(template))

    def profile_of(_model: str, _requested: str | None) -> ModelProfile:
        return profile

    one = preparer_of(profiles=lambda: profile_of)
    request = GenerationRequest(prompt=chat("Hi"), stopping=stopping)
    sent = await one.prepare(request, client_of(None), "")
    assert sent.submitted.stopping.stop == stops
    assert sent.parsers is not None
    sent.parsers.read(TextDelta(index=0, text="Hello."))
    *_, ended = sent.parsers.read(Finished(index=0, reason="stop", stop="<|im_end|>"))
    assert isinstance(ended, Finished) and ended.stop == told


async def test_a_models_own_template_ends_turns_by_itself() -> None:
    sent = await submitted(GenerationRequest(prompt=chat("Hi")))
    assert sent.stopping.stop == ()


async def test_a_configured_template_replaces_the_models() -> None:
    asked: list[tuple[str, str | None]] = []

    def profile_of(model: str, requested: str | None) -> ModelProfile:
        asked.append((model, requested))
        return ModelProfile(template=TemplateOverride("mine", source="{{ messages[0].content }}!"))

    one = preparer_of(profiles=lambda: profile_of)
    sent = await one.prepare(GenerationRequest(prompt=chat("Hi"), model="alias"), client_of(), "")
    assert sent.submitted.prompt == ("Hi!",)
    assert ("fake", "alias") in asked


async def test_what_is_counted_and_shown_is_the_prompt_of_the_variant() -> None:
    variant = ModelProfile(
        template=TemplateOverride("mine", source="{% for m in messages %}[{{ m.content }}]{% endfor %}"),
        system="Be kind.",
        messages=(Message(role="user", content="Who?"), Message(role="assistant", content="Me.")),
    )
    profiles = {"variant": variant}

    def profile_of(model: str, requested: str | None) -> ModelProfile:
        del model
        return profiles.get(requested or "", ModelProfile())

    one = preparer_of(profiles=lambda: profile_of)
    sent = await one.prepare(GenerationRequest(prompt=chat("Hi"), model="variant"), client_of(), "")
    text = "[Be kind.][Who?][Me.][Hi]"
    assert sent.submitted.prompt == (text,)
    assert await one.chat_text(chat("Hi"), client_of(), "variant") == text
    assert await one.count(chat("Hi"), client_of(), "variant") == len(text) + 1
    assert await one.chat_text(chat("Hi"), client_of()) == "<s>[user:Hi]"
    assert not one.shows_tools(client_of("{{ tools }}"), "variant")
    assert one.shows_tools(client_of("{{ tools }}"))


async def test_models_are_not_shown_which_draft_the_schema_of_a_tool_is_written_in() -> None:
    schema: dict[str, Any] = {"$schema": DRAFT, "type": "object", "properties": {}}
    template = "{% for tool in tools %}{{ tool.function | tojson }}{% endfor %}"
    prompt = chat("Hi", tools=(Tool(name="now", parameters=schema),))
    sent = await submitted(GenerationRequest(prompt=prompt), client_of(template))
    assert sent.prompt[0] == '{"name": "now", "parameters": {"type": "object", "properties": {}}}'
    assert "$schema" in schema, "the caller's own is left as it is"


FIM = {role: SpecialToken(290 + i, role) for i, role in enumerate(("fim_pre", "fim_suf", "fim_mid"))}


async def test_infill_puts_prefix_and_suffix_between_the_models_tokens() -> None:
    found = await prepared(
        GenerationRequest(prompt=InfillPrompt("def f(", "):\n")), client_of(special_tokens=FIM)
    )
    assert found.submitted.prompt == ((290,), "def f(", (291,), "):\n", (292,))
    assert not found.submitted.parse_special
    assert (found.infilled, found.truncated) == (True, False)


async def test_infill_without_tokens_is_refused_or_continues_the_prefix() -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        await prepared(GenerationRequest(prompt=InfillPrompt("a", "b")))
    assert caught.value.param == "suffix"
    found = await prepared(GenerationRequest(prompt=InfillPrompt("a", "b", prefix_only=True)))
    assert (found.submitted.prompt, found.infilled) == (("a",), False)


# Sampling and choices


def test_a_drawn_seed_leaves_room_for_the_choices() -> None:
    """llama.cpp takes 0xFFFFFFFF for any seed."""
    drawn = {draw_seed() for _ in range(50)}
    assert len(drawn) > 1
    assert all(0 <= seed < 1 << RANDOM_SEED_BITS for seed in drawn)


async def test_bias_by_text_goes_to_every_token_of_it() -> None:
    request = text_request(sampling=SamplingParams(logit_bias={9: 1.0}), logit_bias_text={"ab": -2.0})
    assert (await submitted(request)).sampling.logit_bias == {9: 1.0, ord("a"): -2.0, ord("b"): -2.0}


@pytest.mark.parametrize(
    ("n", "best_of", "logprobs", "sequences", "needed"),
    [
        (1, 1, None, 1, None),
        (2, 2, None, 2, None),
        (2, 3, None, 3, 0),
        (2, 3, 5, 3, 5),
        (3, 1, None, 3, None),
    ],
)
async def test_the_choice_among_more_needs_their_probabilities(
    n: int, best_of: int, logprobs: int | None, sequences: int, needed: int | None
) -> None:
    sent = await submitted(text_request(n=n, best_of=best_of, logprobs=logprobs))
    assert (sent.n, sent.logprobs) == (sequences, needed)


async def test_what_a_broken_call_loses_is_a_warning() -> None:
    def answer(*arguments: str) -> Message:
        calls = (ToolCall(f"call_{at}", FunctionCall("réad", text)) for at, text in enumerate(arguments))
        return Message(role="assistant", tool_calls=tuple(calls))

    async def warned(*arguments: str) -> tuple[str, ...]:
        messages = (Message(role="user", content="Hi"), answer(*arguments), Message(role="tool", content="R"))
        return (await prepared(GenerationRequest(prompt=ChatPrompt(messages=messages)))).warnings

    assert await warned('{"a": 1}', "", "{'a': 1,}") == ()
    [warning] = await warned('{"a": 1}', '{"a": "cut', "[1]")
    assert warning.startswith(
        "the arguments of the earlier call 'call_1' of 'r\\xe9ad' and of 1 more are no JSON"
    )


# Constraints


async def test_a_constraint_of_a_text_is_compiled() -> None:
    sent = await submitted(text_request(constraint=RegexConstraint("[ab]+")))
    assert sent.guide is not None and sent.guide == Guide(grammar=sent.guide.grammar)
    assert sent.guide.grammar is not None


async def test_a_schema_that_is_not_enforced_is_a_warning_of_a_tool_only() -> None:
    odd: dict[str, Any] = {"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}}
    prompt = chat("Hi", tools=(Tool(name="odd", parameters=odd),))
    found = await prepared(GenerationRequest(prompt=prompt), client_of(HERMES))
    assert [warning.partition(":")[0] for warning in found.warnings] == ["tool odd"]
    assert found.submitted.guide is not None
    with pytest.raises(InvalidRequest):
        await prepared(text_request(constraint=JsonSchemaConstraint(odd)))


# What is refused


@pytest.mark.parametrize(
    ("request_", "client", "error", "param"),
    [
        (GenerationRequest(prompt=ChatPrompt(messages=())), client_of(), InvalidRequest, "messages"),
        (
            GenerationRequest(
                prompt=ChatPrompt(messages=(Message(role="user", content=(ImagePart("http://x/"),)),))
            ),
            client_of(),
            UnsupportedContent,
            None,
        ),
        (
            text_request(sampling=SamplingParams(logit_bias={300: 1.0})),
            client_of(),
            InvalidRequest,
            "logit_bias",
        ),
        (
            text_request(sampling=SamplingParams(logit_bias={-1: 1.0})),
            client_of(),
            InvalidRequest,
            "logit_bias",
        ),
        (text_request(), client_of(is_embedding_model=True), UnsupportedOperation, "model"),
    ],
    ids=["no messages", "image", "bias", "bias below 0", "embedding model"],
)
async def test_a_request_that_no_engine_could_serve_is_refused(
    request_: GenerationRequest, client: FakeClient, error: type[JanServeError], param: str | None
) -> None:
    with pytest.raises(error) as refused:
        await prepared(request_, client)
    assert param is None or refused.value.param == param


# Without generating


async def test_a_prompt_is_counted_as_it_would_be_submitted() -> None:
    one, client = preparer(), client_of()
    assert await one.count(chat("Hi"), client) == len("<s>[user:Hi]") + 1
    assert await one.count(PartsPrompt((TextPart("abc"), TextPart("de"))), client) == 5 + 1
    assert await one.count(PartsPrompt((TextPart("abc"),), add_special=False), client) == 3
    assert client.requests == []
    embeds = client_of(is_embedding_model=True)
    for ask in (one.count(chat("Hi"), embeds), one.chat_text(chat("Hi"), embeds)):
        with pytest.raises(UnsupportedOperation):
            await ask

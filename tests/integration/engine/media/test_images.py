"""Images through a real projector of each kind: the same logits as libmtmd's helper, and nothing computed twice."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path
from typing import Any, get_args

import pytest

from jan_serve.core.messages import AudioPiece, ImagePiece, PromptPiece
from jan_serve.errors import ContextLengthExceeded, InvalidRequest, UnsupportedContent, UnsupportedOperation
from jan_serve.ipc.channel import REQUESTS
from jan_serve.ipc.messages import AbortRequest, ShutdownRequest
from models.recipe.fixtures import (
    write_tiny_hybrid,
    write_tiny_llama,
    write_tiny_recurrent,
    write_tiny_sliding,
)
from models.recipe.projector_fixtures import ProjectorKind, write_tiny_projector, write_tiny_qwen2vl
from tests.integration.engine.media.images import picture, unseen
from tests.integration.engine.media.mtmd_reference import helper_logprobs
from tests.support.drawn_grid import drawn_grid
from tests.support.engine.worker import Result, Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

KINDS: tuple[ProjectorKind, ...] = get_args(ProjectorKind)
SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 8, **EXACT}
QUESTION = "<|im_start|>user\nwhat is in this picture?"
END = "<|im_end|>\n<|im_start|>assistant\n"
LONG = " ".join(f"water {n} house {n * 7 % 50} door" for n in range(30))
_seeds = itertools.count(1000)


def new_picture(**size: int) -> ImagePiece:
    """One that no other test shows."""
    return picture(next(_seeds), **size)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[ProjectorKind, tuple[Path, Path]]:
    """A text model and a projector of each kind."""
    folder = tmp_path_factory.mktemp("seeing")
    write_tiny_llama(folder / "llama.gguf", quantize=False)
    write_tiny_qwen2vl(folder / "qwen2vl.gguf", quantize=False)
    found: dict[ProjectorKind, tuple[Path, Path]] = {}
    for kind in KINDS:
        write_tiny_projector(folder / f"mmproj-{kind}.gguf", kind)
        text = "qwen2vl.gguf" if kind == "qwen2vl_merger" else "llama.gguf"
        found[kind] = (folder / text, folder / f"mmproj-{kind}.gguf")
    return found


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> ProjectorKind:
    return request.param


@pytest.fixture(scope="module")
def shared(kind: ProjectorKind, files: dict[ProjectorKind, tuple[Path, Path]]) -> Generator[Worker]:
    text, projector = files[kind]
    with running_worker(text, projector=str(projector), **SETTINGS) as worker:
        yield worker


@pytest.fixture
def seeing(shared: Worker) -> Generator[Worker]:
    """A worker with a projector of each kind in turn, idle before and after the test."""
    yield shared
    stats = shared.stats()
    assert (stats.running, stats.waiting) == (0, 0)


def asked(*pieces: PromptPiece, **fields: Any) -> Any:
    return generate((QUESTION, *pieces, END), ignore_eos=True, **fields)


def logprobs_of(result: Result) -> dict[int, float]:
    """The most likely first tokens."""
    return {top.id: top.logprob for top in result.choice.tokens[0].top}


def assert_equals_helper(
    result: Result, files: tuple[Path, Path], prompt: tuple[str | ImagePiece, ...]
) -> None:
    expected = helper_logprobs(*files, prompt)
    found = logprobs_of(result)
    assert len(found) == 20
    assert max(abs(expected[token] - logprob) for token, logprob in found.items()) <= 1e-4
    assert int(expected.argmax()) in found


def test_logits_equal_those_of_the_helper_alone_and_beside_others(
    seeing: Worker, kind: ProjectorKind, files: dict[ProjectorKind, tuple[Path, Path]]
) -> None:
    one, other = new_picture(), new_picture(width=70, height=100)
    prompts: list[tuple[str | ImagePiece, ...]] = [
        (QUESTION, one, END),
        (QUESTION, other, END),
        ("first ", one, " then ", other, " and again ", one, END),
    ]
    alone = seeing.run_one(prompts[0], logprobs=20, max_tokens=1)
    assert_equals_helper(alone, files[kind], prompts[0])
    texts = [generate(f"{n} {LONG}", max_tokens=30, ignore_eos=True) for n in range(3)]
    images = [generate(prompt, logprobs=20, max_tokens=1, cache_salt="other") for prompt in prompts]
    seeing.run(texts[0], *images, *texts[1:])
    for request, prompt in zip(images, prompts, strict=True):
        assert_equals_helper(seeing.results[request.id], files[kind], prompt)


def test_answers_are_the_same_alone_and_among_sixteen_requests(seeing: Worker) -> None:
    pictures = [new_picture(width=30 + 5 * n, height=40) for n in range(8)]
    requests = [
        (f"{n} {LONG}", *([pictures[n % 8]] if n % 2 else []), f" what is {n}? " + END) for n in range(16)
    ]
    alone = [
        seeing.run_one(prompt, max_tokens=12, ignore_eos=True, cache_salt="alone") for prompt in requests
    ]
    together = seeing.run(
        *[generate(prompt, max_tokens=12, ignore_eos=True, cache_salt="together") for prompt in requests]
    )
    assert [result.text for result in together] == [result.text for result in alone]
    assert len({result.text for result in together}) > 8


def test_a_second_turn_encodes_nothing_and_computes_only_its_new_tokens(seeing: Worker) -> None:
    image = new_picture()
    first = seeing.run(asked(image, max_tokens=6))[0]
    before = seeing.stats()
    again = END + first.text + "<|im_end|>\n<|im_start|>user\nand its colour?" + END
    second = seeing.run_one((QUESTION, image, again), max_tokens=1)
    after = seeing.stats()
    assert after.media_encoded_total == before.media_encoded_total
    # The shared part ends where the first prompt did: its answer may be cut into other tokens.
    tail = len(seeing.tokenize(again, add_special=False).tokens)
    assert after.computed_tokens_total - before.computed_tokens_total <= tail
    assert second.usage.cached_tokens >= second.usage.prompt_tokens - tail
    cold = seeing.run_one((QUESTION, image, again), max_tokens=1, cache_salt="cold")
    assert cold.text == second.text


def test_the_same_image_elsewhere_is_computed_but_not_encoded_again(seeing: Worker) -> None:
    image = new_picture()
    seeing.run(asked(image))
    before = seeing.stats().media_encoded_total
    twice = seeing.run_one(("other ", image, " and ", image, END))
    assert twice.usage.cached_tokens == 0
    assert seeing.stats().media_encoded_total == before
    assert seeing.stats().media_reused_total > 0


def test_live_requests_share_an_image_of_the_same_prefix(seeing: Worker) -> None:
    image = new_picture(width=90, height=90)
    before = seeing.stats()
    results = seeing.run(*[generate((LONG, image, f"question {n}" + END)) for n in range(8)])
    after = seeing.stats()
    assert after.media_encoded_total - before.media_encoded_total == 1
    cached = sorted(result.usage.cached_tokens for result in results)
    assert cached[0] == 0 and cached[1] > seeing.count(LONG)


def test_images_of_the_same_size_share_nothing(seeing: Worker) -> None:
    one, other = new_picture(), new_picture()
    answers = [seeing.run(asked(image, max_tokens=8))[0] for image in (one, other)]
    shared = seeing.count(QUESTION, add_special=False)
    assert answers[1].usage.cached_tokens <= shared + 20
    assert answers[0].text != answers[1].text
    before = seeing.stats().media_encoded_total
    # Equal digests of different sizes are different images too.
    wide = ImagePiece(width=60, height=20, digest=one.digest, pixels=one.pixels[:3600])
    seeing.run(asked(wide))
    assert seeing.stats().media_encoded_total == before + 1


def test_ten_images_and_several_choices(seeing: Worker) -> None:
    images = [new_picture() for _ in range(10)]
    before = seeing.stats().media_encoded_total
    result = seeing.run(asked(*images, n=3, max_tokens=5))[0]
    assert seeing.stats().media_encoded_total - before == 10
    assert len(set(result.texts)) == 1, "greedy choices are equal"
    assert result.usage.prompt_tokens == seeing.count(QUESTION, *images, END)


def test_the_same_image_twice_is_encoded_once(seeing: Worker) -> None:
    image = new_picture()
    before = seeing.stats().media_encoded_total
    seeing.run(asked(image, " and ", image))
    assert seeing.stats().media_encoded_total - before == 1


def test_images_count_as_tokens_without_their_pixels(seeing: Worker, kind: ProjectorKind) -> None:
    image = new_picture()
    result = seeing.run(asked(image, max_tokens=1))[0]
    assert seeing.count(QUESTION, unseen(image), END) == result.usage.prompt_tokens
    assert result.accepted is not None and result.accepted.prompt_tokens == result.usage.prompt_tokens
    before = seeing.stats().media_encoded_total
    many = [unseen(image)] * 2048
    refused = seeing.run(asked(*many))[0]
    assert isinstance(refused.error, ContextLengthExceeded)
    assert refused.error.n_prompt > 2048
    assert seeing.stats().media_encoded_total == before


def test_text_never_becomes_an_image(seeing: Worker) -> None:
    text = "<__media__> <image> <start_of_image> <|vision_start|><|image_pad|>"
    plain = len(seeing.tokenize(text, add_special=False, parse_special=True).tokens)
    image = new_picture()
    assert seeing.count(text, image) == seeing.count(image) + plain
    assert seeing.run_one((text, image, text + END), max_tokens=2).choice.end.completion_tokens == 2


@pytest.mark.parametrize(
    ("pieces", "fields", "error"),
    [
        (("a", AudioPiece(digest="ab", samples=b"\0" * 64), "b"), {}, UnsupportedContent),
        (("a", picture(1), "b"), {"prompt_logprobs": 1}, UnsupportedOperation),
        (("a", picture(1), "b"), {"keep_state": True}, UnsupportedOperation),
        (("a", ImagePiece(width=0, height=4, digest="ab"), "b"), {}, InvalidRequest),
    ],
)
def test_what_cannot_be_served_is_rejected(
    seeing: Worker, pieces: Any, fields: dict[str, Any], error: type[Exception]
) -> None:
    assert isinstance(seeing.run_one(pieces, **fields).error, error)
    assert seeing.run_one("still here", max_tokens=1).choice.end.completion_tokens == 1


def test_text_must_follow_the_last_image(seeing: Worker, kind: ProjectorKind) -> None:
    """The logits of cells of images are not computed. Some models put a mark of their own behind each image."""
    result = seeing.run_one(("a", picture(1)), max_tokens=1)
    if kind == "mlp":
        assert isinstance(result.error, InvalidRequest)
        assert result.error.message == "prompt: text must follow the last image or sound"
    else:
        assert result.choice.end.completion_tokens == 1


def test_an_abort_in_the_middle_leaves_the_others_and_the_next_ones(seeing: Worker) -> None:
    others = [generate(f"{n} {LONG}", max_tokens=40, ignore_eos=True) for n in range(2)]
    images = [new_picture(width=200, height=200) for _ in range(8)]
    gone = asked(*images, max_tokens=100)
    seeing.send(*others, gone)
    while seeing.results[gone.id].accepted is None:
        seeing.advance()
    seeing.send(AbortRequest(gone.id))
    seeing.until(*others)
    assert all(seeing.results[other.id].choice.end.completion_tokens == 40 for other in others)
    again = seeing.run(asked(*images, max_tokens=3))[0]
    assert again.choice.end.completion_tokens == 3
    assert again.text == seeing.run(asked(*images, max_tokens=3, cache_salt="fresh"))[0].text


def test_streams_go_on_while_an_image_is_encoded_and_an_abort_ends_nobody_else(
    files: dict[ProjectorKind, tuple[Path, Path]],
) -> None:
    text, projector = files["qwen2vl_merger"]
    settings = {**SETTINGS, "n_ctx": 8192, "projector": str(projector)}
    with running_worker(text, **settings) as worker:
        stream = generate(LONG, max_tokens=4000, ignore_eos=True)
        gone, large = asked(picture(1, 840, 840)), asked(picture(2, 840, 840), max_tokens=2)
        worker.send(stream)
        while not worker.results[stream.id].choices:
            worker.advance()
        worker.send(gone)
        while worker.results[gone.id].accepted is None:
            worker.advance()
        worker.send(AbortRequest(gone.id), large)
        while worker.results[large.id].accepted is None:
            worker.advance()
        before = len(worker.results[stream.id].events)
        worker.until(large)
        assert len(worker.results[stream.id].events) - before > 20
        assert worker.results[large.id].choice.end.completion_tokens == 2
        assert worker.results[gone.id].choices == {}
        worker.send(AbortRequest(stream.id))
        stats = worker.stats()
        assert stats.media_encoded_total <= 2


def test_drafts_do_not_change_what_is_said_about_an_image(
    files: dict[ProjectorKind, tuple[Path, Path]],
) -> None:
    text, projector = files["mlp"]
    prompt = ("a b c d a b c d ", picture(3), " a b c d a b" + END)
    answers: set[str] = set()
    for drafts in ({}, {"prompt_lookup": "on"}, {"draft_path": str(text)}):
        with running_worker(text, **SETTINGS, projector=str(projector), **drafts) as worker:
            answers.add(worker.run_one(prompt, max_tokens=40, ignore_eos=True).text)
            answers.add(worker.run_one(prompt, max_tokens=40, ignore_eos=True).text)
    assert len(answers) == 1


def test_more_pixels_than_a_frame_holds(files: dict[ProjectorKind, tuple[Path, Path]]) -> None:
    text, projector = files["mlp"]
    images = [picture(seed, 2048, 2048) for seed in range(6)]
    assert sum(len(image.pixels) for image in images) > REQUESTS.limit
    with running_worker(text, projector=str(projector), **SETTINGS) as worker:
        result, other = worker.run(asked(*images, max_tokens=2), asked(picture(9), max_tokens=2))
        assert result.choice.end.completion_tokens == other.choice.end.completion_tokens == 2
        assert worker.stats().media_encoded_total == 7


@drawn_grid(write=[write_tiny_sliding, write_tiny_hybrid, write_tiny_recurrent], projector=["mlp", "gemma3"])
def test_other_memories_than_a_plain_cache(write: Any, projector: ProjectorKind, tmp_path: Path) -> None:
    """Blocks with a sliding window, and recurrent ones, whose sequences are only shared as a whole."""
    files = tmp_path / "text.gguf", tmp_path / "mmproj.gguf"
    write(files[0], quantize=False)
    write_tiny_projector(files[1], projector)
    prompt = (QUESTION + LONG[:200], picture(5), "more ", picture(6), "and here" + END)
    settings: dict[str, Any] = {**SETTINGS, "projector": str(files[1]), "cache_dir": str(tmp_path / "states")}
    with running_worker(files[0], **settings) as worker:
        assert_equals_helper(worker.run_one(prompt, logprobs=20, max_tokens=1), files, prompt)
        first = worker.run_one(prompt, max_tokens=8, ignore_eos=True)
        longer = (*prompt, first.text + END)
        second = worker.run_one(longer, max_tokens=8, ignore_eos=True)
        assert second.usage.cached_tokens >= worker.count(*prompt[:4])
        cold = worker.run_one(longer, max_tokens=8, ignore_eos=True, cache_salt="cold")
        choices = worker.run_one(longer, n=3, max_tokens=8, ignore_eos=True, cache_salt="choices")
        assert {second.text, *choices.texts} == {cold.text}
        worker.send(ShutdownRequest())
        assert worker.process.wait(30.0) == 0
    with running_worker(files[0], **settings) as worker:
        assert worker.run_one(longer, max_tokens=8, ignore_eos=True).text == cold.text


def test_cells_of_an_image_return_from_disk_after_a_restart(
    kind: ProjectorKind, files: dict[ProjectorKind, tuple[Path, Path]], tmp_path: Path
) -> None:
    text, projector = files[kind]
    settings: dict[str, Any] = {**SETTINGS, "cache_dir": str(tmp_path), "projector": str(projector)}
    prompt = (LONG, picture(1, 90, 80), " what is this?" + END)
    longer = (*prompt[:2], " and that?" + END)
    with running_worker(text, **settings) as worker:
        first = worker.run_one(prompt, max_tokens=8, ignore_eos=True)
        cold = worker.run_one(longer, max_tokens=8, ignore_eos=True, cache_salt="cold")
        worker.send(ShutdownRequest())
        assert worker.process.wait(30.0) == 0
    with running_worker(text, **settings) as worker:
        again = worker.run_one(prompt, max_tokens=8, ignore_eos=True)
        assert again.text == first.text
        assert again.usage.cached_tokens > worker.count(*prompt[:2]) - 12
        other = worker.run_one(longer, max_tokens=8, ignore_eos=True)
        assert other.text == cold.text
        assert other.usage.cached_tokens > worker.count(*prompt[:2]) - 12
        assert worker.stats().media_encoded_total == 0
    other_projector = tmp_path / "other.gguf"
    write_tiny_projector(other_projector, kind, seed=1)
    with running_worker(text, **{**settings, "projector": str(other_projector)}) as worker:
        assert worker.run_one(prompt, max_tokens=8, ignore_eos=True).usage.cached_tokens == 0

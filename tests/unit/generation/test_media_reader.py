"""Where the images of a prompt are placed, what is counted and decoded when, and what models without sight read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from jan_serve.core.messages import ImagePart, ImagePiece, Message, TextPart
from jan_serve.core.request import ChatPrompt, GenerationRequest, PartsPrompt, StopConditions
from jan_serve.errors import ContextLengthExceeded, InvalidImage, UnsupportedContent
from jan_serve.generation.media_reader import MediaReader
from jan_serve.generation.prepare import PreparedRequest
from jan_serve.image_files import MAX_FILE_BYTES
from tests.support.engine.fake_client import FakeClient, fake_facts
from tests.support.helpers.decoding import InlineDecoder
from tests.support.media.pictures import BLUE, RED, data_url, picture, png_header
from tests.unit.generation.support import preparer

pytestmark = pytest.mark.anyio

RED_FILE, BLUE_FILE = picture(16, 8, color=RED), picture(9, 12, color=BLUE)
SEES = fake_facts(modalities=("vision",))
START, END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


def piece(data: bytes, width: int, height: int, color: tuple[int, int, int] | None) -> ImagePiece:
    pixels = b"" if color is None else bytes(color) * width * height
    return ImagePiece(width=width, height=height, digest=hashlib.sha256(data).hexdigest(), pixels=pixels)


def image(data: bytes, param: str = "messages[0].content[1].image_url", note: str | None = None) -> ImagePart:
    return ImagePart(data_url(data), param, note)


def chat(*contents: Any, role: str = "user", **fields: Any) -> GenerationRequest:
    messages = tuple(Message(role=role, content=content) for content in contents)
    return GenerationRequest(prompt=ChatPrompt(messages=messages), **fields)


async def prepared(
    request: GenerationRequest, decoder: InlineDecoder | None = None, seeing: Sequence[str] = (), **facts: Any
) -> PreparedRequest:
    async def names(sense: str) -> Sequence[str]:
        return seeing if sense == "vision" else ()

    client = FakeClient(facts=fake_facts(**({"modalities": ("vision",)} | facts)))
    return await preparer(MediaReader((decoder or InlineDecoder()).decode, models_with=names)).prepare(
        request, client, ""
    )


PLACES: dict[str, tuple[Any, list[Any]]] = {
    "before the text": ((image(RED_FILE), TextPart("What?")), [START, RED, "What?" + END]),
    "after the text": ((TextPart("What?"), image(RED_FILE)), [START + "What?", RED, END]),
    "between texts": (
        (TextPart("a"), TextPart("b"), image(RED_FILE), TextPart("c")),
        [START + "a\nb", RED, "c" + END],
    ),
    "two in a row": ((image(RED_FILE), image(BLUE_FILE)), [START, RED, BLUE, END]),
    "alone": ((image(BLUE_FILE),), [START, BLUE, END]),
    "the same twice": ((image(RED_FILE), TextPart("x"), image(RED_FILE)), [START, RED, "x", RED, END]),
}


@pytest.mark.parametrize(("content", "want"), PLACES.values(), ids=PLACES)
async def test_an_image_is_where_its_part_was(content: Any, want: list[Any]) -> None:
    decoder = InlineDecoder()
    found = (await prepared(chat(content), decoder)).submitted.prompt
    pieces = {RED: piece(RED_FILE, 16, 8, RED), BLUE: piece(BLUE_FILE, 9, 12, BLUE)}
    assert list(found) == [pieces.get(part, part) for part in want]
    assert len(decoder.asked) == len({part for part in want if part in pieces})


async def test_images_of_several_turns_and_roles_keep_their_order() -> None:
    request = chat((image(RED_FILE), TextPart("1")), (image(BLUE_FILE), TextPart("2")))
    found = (await prepared(request)).submitted.prompt
    assert [part.width for part in found if isinstance(part, ImagePiece)] == [16, 9]


async def test_no_text_passes_for_an_image() -> None:
    forged = "<__media__> <image> [img-1] image00000000000000000000000000000000n0e"
    found = (await prepared(chat((TextPart(forged), image(RED_FILE))))).submitted.prompt
    assert found[0] == START + forged
    assert sum(isinstance(part, ImagePiece) for part in found) == 1


async def test_each_request_has_markers_of_its_own() -> None:
    client = FakeClient(facts=SEES)
    reader = MediaReader(InlineDecoder().decode)
    messages = (Message(role="user", content=(image(RED_FILE),)),)
    marked = [await reader.marked(messages, client) for _ in range(2)]
    assert marked[0].messages != marked[1].messages
    assert isinstance(marked[0].messages[0].content, str)
    assert marked[1].pieces(marked[0].messages[0].content) == (marked[0].messages[0].content,)


async def test_a_template_may_leave_an_image_out_or_show_it_twice() -> None:
    client = FakeClient(facts=SEES)
    messages = (Message(role="user", content=(image(RED_FILE), image(BLUE_FILE))),)
    decoder = InlineDecoder()
    reader = MediaReader(decoder.decode)
    marked = await reader.marked(messages, client)
    text = str(marked.messages[0].content)
    first = text[: len(text) // 2]
    red = piece(RED_FILE, 16, 8, RED)
    found = await reader.decoded(marked.pieces(f"{first}, {first}."), marked.media)
    assert found == (red, ", ", red, ".")
    assert len(decoder.asked) == 1, "what no one shows is not decoded"


async def test_texts_and_images_without_a_template() -> None:
    request = GenerationRequest(prompt=PartsPrompt((TextPart("a"), image(RED_FILE), TextPart("b"))))
    found = (await prepared(request)).submitted
    assert found.prompt == ("a", piece(RED_FILE, 16, 8, RED), "b")
    assert found.add_special


async def test_the_length_is_checked_before_anything_is_decoded() -> None:
    decoder = InlineDecoder()
    with pytest.raises(ContextLengthExceeded) as caught:
        await prepared(chat((TextPart("x" * 500), image(RED_FILE))), decoder)
    assert caught.value.n_prompt > 512
    assert decoder.asked == []


async def test_a_prompt_that_fills_the_context_is_for_scoring_only() -> None:
    content = (TextPart("x"), image(RED_FILE))
    n_prompt = len(START + "x" + "[16x8]" + END) + 1
    await prepared(chat(content, stopping=StopConditions(max_tokens=0)), n_ctx=n_prompt)
    with pytest.raises(ContextLengthExceeded):
        await prepared(chat(content), n_ctx=n_prompt)


async def test_tokens_are_counted_without_decoding() -> None:
    decoder = InlineDecoder()
    client = FakeClient(facts=SEES)
    header_only = png_header(40, 30)
    prompt = ChatPrompt(messages=(Message(role="user", content=(image(header_only), TextPart("x"))),))
    made = preparer(MediaReader(decoder.decode))
    assert await made.count(prompt, client) == len(START + "[40x30]x" + END) + 1
    assert await made.chat_text(prompt, client) == START + "<__media__>x" + END
    assert decoder.asked == []


REFUSED: dict[str, tuple[str, str]] = {
    "not an image": (data_url(b"hello"), "not a PNG"),
    "empty": ("", "the image is empty"),
    "not base64": ("data:image/png;base64,!!!", "not encoded as base64"),
    "damaged": (data_url(png_header(5, 5)), "damaged"),
    "too large": (data_url(png_header(20_000, 20_000)), "the limit is 32 million"),
    "elsewhere": ("https://example.com/a.png", "fetches no images from other hosts"),
    "this machine": ("http://127.0.0.1:8080/a.png", "fetches no images from other hosts"),
}


@pytest.mark.parametrize(("url", "reason"), REFUSED.values(), ids=REFUSED)
async def test_a_wrong_image_is_refused_by_its_field(url: str, reason: str) -> None:
    with pytest.raises(InvalidImage, match=reason) as caught:
        await prepared(chat((TextPart("x"), ImagePart(url, "messages[0].content[1].image_url"))))
    assert caught.value.param == "messages[0].content[1].image_url"
    assert caught.value.message.startswith("messages[0].content[1].image_url: ")


async def test_a_request_has_a_limited_number_of_images() -> None:
    few = tuple(image(RED_FILE, f"images[{index}]") for index in range(64))
    assert len((await prepared(chat(few), n_ctx=2048)).submitted.prompt) == 66
    with pytest.raises(InvalidImage, match="65 images; the limit is 64") as caught:
        await prepared(chat((*few, image(RED_FILE, "images[64]"))))
    assert caught.value.param == "images[64]"


async def test_many_images_have_no_more_pixels_than_a_few_large_ones() -> None:
    screens = tuple(
        image(picture(2560, 1440, color=(shade, 0, 0)), f"images[{shade}]") for shade in range(33)
    )
    found = (await prepared(chat(screens), n_ctx=2048)).submitted.prompt
    pixels = [part.pixels for part in found if isinstance(part, ImagePiece)]
    assert {len(each) for each in pixels} == {3 * 1365 * 768}
    assert len(set(pixels)) == 33


async def test_files_from_elsewhere_have_a_limit_together() -> None:
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return png_header(8, 8) + bytes(MAX_FILE_BYTES - 100)

    client = FakeClient(facts=SEES)
    parts = tuple(ImagePart(f"https://host/{index}", f"images[{index}]") for index in range(64))
    with pytest.raises(InvalidImage, match="together; the limit is 335544320") as caught:
        await preparer(MediaReader(InlineDecoder().decode, fetch)).prepare(chat(parts), client, "")
    assert caught.value.param == "images[16]"
    assert len(asked) == 17


async def test_an_image_from_elsewhere_is_fetched_once_for_all_steps() -> None:
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return RED_FILE

    client = FakeClient(facts=SEES)
    made = preparer(MediaReader(InlineDecoder().decode, fetch))
    prompt = PartsPrompt((TextPart("a"), ImagePart("https://host/a.png", "inputs"), image(BLUE_FILE)))
    fetched = await made.fetched(prompt, client)
    assert await made.count(fetched, client) == len("a[16x8][9x12]") + 1
    found = (await made.prepare(GenerationRequest(prompt=fetched), client, "")).submitted.prompt
    assert found == ("a", piece(RED_FILE, 16, 8, RED), piece(BLUE_FILE, 9, 12, BLUE))
    assert asked == ["https://host/a.png"]


async def test_nothing_is_fetched_for_a_model_without_sight() -> None:
    async def fetch(url: str) -> bytes:
        raise AssertionError(url)

    prompt = PartsPrompt((ImagePart("https://host/a.png", "inputs"),))
    assert await preparer(MediaReader(fetcher=fetch)).fetched(prompt, FakeClient()) == prompt


@pytest.mark.parametrize(("seeing", "words"), [((), "no model of this server"), (("eyes",), "eyes can see")])
async def test_a_model_without_sight_names_one_that_sees(seeing: tuple[str, ...], words: str) -> None:
    requests = [
        chat((TextPart("x"), image(b"never read", "p"))),
        GenerationRequest(prompt=PartsPrompt((image(b"never read", "p"),))),
    ]
    for request in requests:
        with pytest.raises(
            UnsupportedContent, match=f"p: an image, and fake reads text only; {words}"
        ) as caught:
            await prepared(request, seeing=seeing, modalities=())
        assert caught.value.param == "p"


async def test_a_model_without_sight_reads_notes() -> None:
    content = (TextPart("before"), image(b"never read", "messages[2]", "[an image]"), TextPart("after"))
    ready = await prepared(chat(content), modalities=())
    assert ready.submitted.prompt == (START + "before\n[an image]\nafter" + END,)
    assert ready.warnings == ("messages[2]: this model reads text only; the image was left out",)
    request = GenerationRequest(prompt=PartsPrompt((TextPart("a "), image(b"never read", note="![](x)"))))
    assert (await prepared(request, modalities=())).submitted.prompt == ("a ![](x)",)


async def test_a_server_without_a_decoder_says_so() -> None:
    client = FakeClient(facts=SEES)
    with pytest.raises(UnsupportedContent, match="decodes no images"):
        await preparer().prepare(chat((image(RED_FILE),)), client, "")

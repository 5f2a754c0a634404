"""The tokens of a prompt in TGI's form, with those that its images take."""

from __future__ import annotations

from typing import Final

from jan_serve.core.messages import ImagePart, TextPart
from jan_serve.core.request import PartsPrompt
from jan_serve.dialects.tgi.generate.parse import markdown, prompt_with_images
from jan_serve.dialects.tgi.generate.spans import spans
from jan_serve.dialects.tgi.generate.wire import SimpleToken
from jan_serve.generation.leased_model import LeasedModel

_NO_TOKEN: Final = 0
"""The id of a cell with a part of an image: the vocabulary has none for it."""


async def prompt_tokens(model: LeasedModel, inputs: str, *, add_special: bool = True) -> list[SimpleToken]:
    """As `spans`; each cell of an image covers its Markdown and has no text. Images are not decoded.

    Raises as LeasedModel.count.
    """
    prompt = prompt_with_images(model.facts, inputs, add_special=add_special)
    if prompt is None:
        found = await model.tokenize(inputs, add_special=add_special, with_pieces=True)
        return spans(inputs, found.tokens, found.pieces)
    prompt = await model.fetched(prompt)
    total = await model.count(prompt)
    tokens: list[SimpleToken] = []
    at = 0
    for part in prompt.parts:
        if isinstance(part, ImagePart):
            stop = at + len(markdown(part).encode())
            cells = await model.count(PartsPrompt((part,), add_special=False))
            cell: SimpleToken = {"id": _NO_TOKEN, "text": "", "start": at, "stop": stop}
            tokens += [cell] * cells
            at = stop
        elif isinstance(part, TextPart):
            found = await model.tokenize(part.text, add_special=False, with_pieces=True)
            tokens += [_moved(token, at) for token in spans(part.text, found.tokens, found.pieces)]
            at += len(part.text.encode())
    bos = model.facts.special_tokens.get("bos")
    if bos is not None and total > len(tokens):
        tokens.insert(0, {"id": bos.id, "text": "", "start": 0, "stop": 0})
    return tokens


def _moved(token: SimpleToken, by: int) -> SimpleToken:
    if token["start"] == token["stop"]:
        return token
    return {**token, "start": token["start"] + by, "stop": token["stop"] + by}

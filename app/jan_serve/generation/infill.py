"""Fill-in-the-middle prompts, as models with FIM tokens were trained on them.

Source: llama.cpp's `format_infill` (tools/server) and the repository pattern of Qwen2.5-Coder (arXiv:2409.12186).
"""

from __future__ import annotations

from typing import Final

from jan_serve.core.models import ModelFacts
from jan_serve.core.request import InfillFile, InfillPrompt
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.ports import EngineClient
from jan_serve.ipc.messages import TokenizeRequest

Pieces = tuple[str | tuple[int, ...], ...]

_FIM: Final = ("fim_pre", "fim_suf", "fim_mid")
_PROJECT: Final = "myproject\n"
_FILENAME: Final = "filename\n"
_PREFIX_SHARE: Final = 0.75
_ANSWER: Final = 256
"""Context tokens reserved for the answer if the request sets no limit."""


async def infill_pieces(
    prompt: InfillPrompt, client: EngineClient, max_tokens: int | None
) -> tuple[Pieces, bool] | None:
    """The prompt, and whether some of the text was left out; None if the model has no FIM tokens and `prefix_only`
    allows that.

    The text is code: nothing in it is parsed as a special token. Raises UnsupportedOperation.
    """
    facts = client.facts
    if not set(_FIM) <= facts.special_tokens.keys():
        if prompt.prefix_only:
            return None
        raise UnsupportedOperation(
            "suffix: this model has no fill-in-the-middle tokens, so it cannot use a suffix", param="suffix"
        )
    whole = _gap(facts, prompt.prefix, prompt.suffix, prompt.middle)
    if not prompt.may_cut:
        return (*_files(facts, prompt.extra), *whole), False
    return await _fitted(prompt, client, max_tokens)


async def _fitted(prompt: InfillPrompt, client: EngineClient, max_tokens: int | None) -> tuple[Pieces, bool]:
    """The pieces that fit the context: the text nearest to the gap first, then the last files."""
    facts = client.facts
    marks = len(_FIM) + 8
    room = facts.n_ctx - (_ANSWER if max_tokens is None else max_tokens) - marks
    middle = await _tokens(client, prompt.middle)
    room = max(0, room - len(middle))
    prefix, suffix = await _tokens(client, prompt.prefix), await _tokens(client, prompt.suffix)
    for_suffix = max(int(room * (1 - _PREFIX_SHARE)), room - len(prefix))
    kept_suffix = suffix[: min(len(suffix), for_suffix)]
    kept_prefix = prefix[max(0, len(prefix) - (room - len(kept_suffix))) :]
    room -= len(kept_prefix) + len(kept_suffix)
    truncated = len(kept_prefix) < len(prefix) or len(kept_suffix) < len(suffix)
    files: list[InfillFile] = []
    for file in reversed(prompt.extra):
        room -= len(await _tokens(client, file.filename + file.text)) + marks
        if room < 0:
            truncated = True
            break
        files.insert(0, file)
    gap = _gap(facts, tuple(kept_prefix), tuple(kept_suffix), tuple(middle))
    return (*_files(facts, files), *gap), truncated


def _files(facts: ModelFacts, files: tuple[InfillFile, ...] | list[InfillFile]) -> Pieces:
    """Other files, and the name of this one; only their text if the model has no tokens for that."""
    if not files:
        return ()
    repository, separator = facts.special_tokens.get("fim_rep"), facts.special_tokens.get("fim_sep")
    if separator is None:
        return ("".join(f"{file.text}\n" for file in files),)
    pieces: list[str | tuple[int, ...]] = []
    if repository is not None:
        pieces += [(repository.id,), _PROJECT]
    for file in files:
        pieces += [(separator.id,), f"{file.filename}\n{file.text}\n"]
    return (*pieces, (separator.id,), _FILENAME)


def _gap(
    facts: ModelFacts,
    prefix: str | tuple[int, ...],
    suffix: str | tuple[int, ...],
    middle: str | tuple[int, ...],
) -> Pieces:
    before, after, gap = ((facts.special_tokens[role].id,) for role in _FIM)
    pieces: Pieces = (before, prefix, after, suffix, gap)
    return (*pieces, middle) if middle else pieces


async def _tokens(client: EngineClient, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    request = TokenizeRequest(text=text, add_special=False, parse_special=False)
    return tuple((await client.ask(request)).tokens)

"""The first token of a model, computed while it loads: a file at which llama.cpp ends the process is a failed load."""

from __future__ import annotations

import logging

from jan_serve.engine.llama.context import DECODE_OK, Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.thread_pool import ThreadPool

logger = logging.getLogger(__name__)

_TEXT = "a b\n0\t\x01\x7fé漢😀\u0378 <s>"
"""Characters of one to four bytes, which few vocabularies have all: the others become bytes."""


def try_out(model: LlamaModel, context: LlamaContext | None, threads: ThreadPool) -> None:
    """Tokenise a text and compute a token. Blocks for about a step. context: None for a model that only embeds.

    Raises InsufficientMemory.
    """
    if context is not None:
        compute_a_token(context)
        return
    own = LlamaContext.tiny(model, threads)
    compute_a_token(own)
    own.close()


def compute_a_token(context: LlamaContext) -> None:
    """Tokenise a text, compute its first token, and empty the context."""
    model = context.model
    tokens = model.vocab.tokenize(_TEXT, add_special=True, parse_special=False)
    if model.has_encoder or not model.vocab.n_tokens:
        return
    batch = Batch(1)
    batch.add_one(tokens[0] if tokens else 0, 0, 0)
    code = context.decode(batch)
    context.clear()
    if code != DECODE_OK:
        logger.warning("llama.cpp could not compute a token of the model (llama_decode: %d)", code)

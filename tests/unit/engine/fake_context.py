"""A context without a model: it notes what is asked of it, and fails where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from jan_serve.engine.llama.context import DECODE_OK, Floats, SequenceBytes
from jan_serve.engine.sequence import RequestState, Sequence, SequenceText
from jan_serve.engine.tokens import TokenBuffer, Tokens
from jan_serve.ipc.messages import EngineRequest


class FakeContext:
    """`calls`: name and sequence ids of each call. Its small vocabulary always goes on with token 1."""

    n_ctx = 4096
    n_batch = 512
    n_vocab = 4

    def __init__(self) -> None:
        self.model = SimpleNamespace(is_recurrent=False, n_embd=2)
        self.calls: list[tuple[str, int]] = []
        self.save_fault: Exception | None = None
        self.restores = True
        self.truncates = True
        self.sequence_bytes = 10
        self.is_cuttable = True
        self.has_window = False
        self.reaches = True
        self.decode_codes: list[int] = []

    def called(self, name: str) -> list[int]:
        """The sequence ids that this was called with."""
        return [seq_id for called, seq_id in self.calls if called == name]

    def state_bytes(self, seq_id: int) -> int:
        return self.sequence_bytes

    def save_sequence(self, seq_id: int) -> SequenceBytes:
        self.calls.append(("save", seq_id))
        if self.save_fault is not None:
            raise self.save_fault
        return np.zeros(10, np.uint8)

    def restore_sequence(self, seq_id: int, data: SequenceBytes, length: int) -> bool:
        self.calls.append(("restore", seq_id))
        return self.restores

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        self.calls.append(("copy", target))

    def reaches_back(self, seq_id: int, length: int) -> bool:
        return self.reaches

    def replace_prefix(self, source: int, target: int, length: int) -> bool:
        self.calls.append(("replace", target))
        return self.is_cuttable

    def truncate(self, seq_id: int, length: int) -> bool:
        self.calls.append(("truncate", seq_id))
        return self.truncates

    def remove(self, seq_id: int) -> None:
        self.calls.append(("remove", seq_id))

    def clear(self) -> None:
        self.calls.append(("clear", -1))

    def decode(self, batch: Any, meanwhile: Callable[[], None] | None = None) -> int:
        self.calls.append(("decode", batch.size))
        if meanwhile is not None:
            meanwhile()
        return self.decode_codes.pop(0) if self.decode_codes else DECODE_OK

    def logits(self, index: int) -> Any:
        return np.array([0, 20, 0, 0], np.float32)

    def output_hidden(self) -> None:
        self.calls.append(("output_hidden", -1))

    def hidden(self, first: int, end: int) -> Floats:
        return np.zeros((end - first, self.model.n_embd), np.float32)


def sequence_of(tokens: Tokens) -> Sequence:
    """A sequence that waits; nothing samples it."""
    buffer = TokenBuffer(tokens.tolist())
    request = EngineRequest(cache_salt="", id=1, prompt=("",))
    nothing: Any = None
    return Sequence(
        state=RequestState(request, len(buffer), arrived=0.0, unfinished=1),
        index=0,
        tokens=buffer,
        sampler=nothing,
        text=SequenceText((), include_stop=False, keep_tokens=False),
        max_new=16,
        seed=None,
    )

"""An inference context: batches in, logits or embeddings out, and the KV cache of its sequences."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import extension, lib
from jan_serve.engine.llama.context_errors import context_error
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.errors import EngineFailure, SettingsError

Tokens = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
SequenceBytes = npt.NDArray[np.uint8]

KV_TYPES: dict[str, int] = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,  # GGML_TYPE_BF16, which the bindings lack
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
}
_FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
_TINY = 32  # cells
_POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}  # enum llama_pooling_type

# llama_decode
DECODE_OK = 0
DECODE_NO_CELLS = 1
DECODE_ABORTED = 2


class DecodeFailure(RuntimeError):
    """A fatal end of llama_decode. It ends the worker, and the open requests go on in the next one."""


def _raw_batch(
    seq: Tokens, pos: Tokens, logits: npt.NDArray[np.int8], token: Tokens | None, embd: Floats | None
) -> tuple[Any, list[Any]]:
    """A `llama_batch` over these arrays, each token of exactly one sequence, and what must live as long as it."""
    n_seq = np.ones(len(seq), np.int32)
    seq_pointers = seq.ctypes.data + 4 * np.arange(len(seq), dtype=np.uintp)
    raw = lib.llama_batch(
        0,
        None if token is None else _pointer(token, lib.llama_token),
        None if embd is None else _pointer(embd, ctypes.c_float),
        _pointer(pos, lib.llama_pos),
        _pointer(n_seq, ctypes.c_int32),
        _pointer(seq_pointers, ctypes.POINTER(lib.llama_seq_id)),
        _pointer(logits, ctypes.c_int8),
    )
    return raw, [seq, pos, logits, token, embd, n_seq, seq_pointers]


class Batch:
    """A `llama_batch` over numpy arrays: tokens of one or many sequences for one llama_decode."""

    is_causal = True

    def __init__(self, capacity: int, n_hidden: int = 0) -> None:
        """n_hidden: width of the hidden state that each token has beside its id, for a head; 0: none."""
        self.capacity = capacity
        self.size = 0
        self._token = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._logits = np.zeros(capacity, np.int8)
        self._hidden = np.zeros((capacity, n_hidden), np.float32)
        hidden = self._hidden if n_hidden else None
        self.raw, self._kept = _raw_batch(self._seq, self._pos, self._logits, self._token, hidden)

    def clear(self) -> None:
        self.size = 0

    def add(self, tokens: Tokens, pos: int, seq_id: int, *, outputs: Literal["none", "last", "all"]) -> int:
        """Append `tokens` of one sequence from position `pos`; return the batch index of the last one."""
        start, end = self.size, self.size + len(tokens)
        if end > self.capacity:
            raise ValueError(f"a batch of {self.capacity} tokens cannot take {end}")
        self._token[start:end] = tokens
        self._pos[start:end] = np.arange(pos, pos + len(tokens), dtype=np.int32)
        self._seq[start:end] = seq_id
        self._logits[start:end] = outputs == "all"
        if outputs == "last":
            self._logits[end - 1] = 1
        self.size = end
        return end - 1

    def add_one(self, token: int, pos: int, seq_id: int) -> int:
        """Append one token with logits; return its batch index."""
        i = self.size
        self._token[i] = token
        self._pos[i] = pos
        self._seq[i] = seq_id
        self._logits[i] = 1
        self.size = i + 1
        return i

    def seq_ids(self) -> list[int]:
        """Sequence id of each token."""
        return self._seq[: self.size].tolist()

    def set_hidden(self, rows: Floats) -> None:
        """The hidden states of the first tokens. Shape (tokens, n_hidden)."""
        self._hidden[: len(rows)] = rows


class EmbeddingBatch:
    """A `llama_batch` of embeddings in place of tokens, without outputs: cells of images and sound."""

    def __init__(
        self,
        rows: Sequence[Floats],
        positions: Sequence[Tokens],
        seq_ids: Sequence[int],
        *,
        is_causal: bool = True,
    ) -> None:
        """One item for each sequence. rows: (cells, width). positions: (components, cells).

        is_causal: if not, cells attend to later ones of their sequence too, and `n_ubatch` is the most of them.
        """
        self.is_causal = is_causal
        self.size = sum(len(part) for part in rows)
        embd = np.ascontiguousarray(np.concatenate(rows), np.float32)
        pos = np.ascontiguousarray(np.concatenate(positions, axis=1), np.int32)
        self._seq = np.repeat(np.array(seq_ids, np.int32), [len(part) for part in rows])
        self.raw, self._kept = _raw_batch(self._seq, pos, np.zeros(self.size, np.int8), None, embd)

    def seq_ids(self) -> list[int]:
        """Sequence id of each cell."""
        return self._seq.tolist()


class AbortFlag:
    """Interrupts llama_decode on the CPU between two graph nodes. Thread-safe: a single byte. ggml calls `bool (*)(void
    *)` after every node; a Python callback would take the GIL a thousand times per step. libc's strlen has the same
    calling convention, and returns the flag for this buffer: 0 or 1."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(2)
        libc = ctypes.CDLL("msvcrt") if hasattr(ctypes, "WinDLL") else ctypes.CDLL(None)
        self.callback = ctypes.cast(libc.strlen, lib.ggml_abort_callback)
        self.data = ctypes.cast(self._buffer, ctypes.c_void_p)

    def set(self) -> None:
        self._buffer[0] = b"\x01"

    def clear(self) -> None:
        self._buffer[0] = b"\x00"


class LlamaContext:
    """Wraps `llama_context`. Owned by one thread; others may use only its AbortFlag."""

    def __init__(
        self,
        model: LlamaModel,
        *,
        n_ctx: int,
        n_batch: int,
        n_ubatch: int,
        n_seq_max: int,
        threads: ThreadPool,
        embeddings: bool = False,
        pooling: str | None = None,
        flash_attn: str = "auto",
        type_k: str = "f16",
        type_v: str = "f16",
        head_of: LlamaContext | None = None,
        max_rollback: int = 0,
    ) -> None:
        """Allocate `n_ctx` cells. Raises InsufficientMemory, SettingsError or ModelFailed if llama.cpp cannot.

        head_of: this context computes the head of that context's model, which predicts further tokens (MTP).
        max_rollback: the most tokens that `truncate` shall drop from a recurrent sequence, of its latest batch without
        the first one; each sequence has so many states more.
        """
        self._alike = partial(
            LlamaContext,
            model,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_seq_max=n_seq_max,
            threads=threads,
            embeddings=embeddings,
            pooling=pooling,
            flash_attn=flash_attn,
            type_k=type_k,
            type_v=type_v,
            max_rollback=max_rollback,
        )
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_ubatch = n_ubatch
        params.n_seq_max = n_seq_max
        params.n_threads = threads.count
        params.n_threads_batch = threads.count
        params.kv_unified = True
        params.swa_full = True
        params.no_perf = True
        params.flash_attn_type = _FLASH_ATTN[flash_attn]
        params.type_k = _kv_type("type_k", type_k)
        params.type_v = _kv_type("type_v", type_v)
        params.embeddings = embeddings
        params.n_rs_seq = max_rollback
        if head_of is not None:
            params.ctx_type = lib.LLAMA_CONTEXT_TYPE_MTP
            params.ctx_other = head_of.pointer
        if pooling is not None:
            params.pooling_type = _POOLING[pooling]
        self.abort_flag = AbortFlag()
        params.abort_callback = self.abort_flag.callback
        params.abort_callback_data = self.abort_flag.data
        with backend.last_errors() as errors:
            pointer = lib.llama_init_from_model(model.pointer, params)
        if not pointer:
            raise context_error(errors, n_ctx=n_ctx, type_k=type_k, type_v=type_v, flash_attn=flash_attn)
        self.pointer: Any = pointer
        self._threads = threads
        threads.attach(pointer)
        self.model = model
        self.n_ctx = int(lib.llama_n_ctx(pointer))
        self.n_batch = int(lib.llama_n_batch(pointer))
        self.n_ubatch = int(lib.llama_n_ubatch(pointer))
        self.n_vocab = model.vocab.n_tokens
        self._logits_row = ctypes.c_float * self.n_vocab
        self._memory = lib.llama_get_memory(pointer)
        self._n_swa = model.n_swa
        # Of a sequence that was rolled back, llama.cpp takes the earlier state in the next batch (rs_idx).
        self._rolled_back: set[int] = set()
        self._rolls_back = self.max_rollback > 0

    @classmethod
    def tiny(cls, model: LlamaModel, threads: ThreadPool) -> LlamaContext:
        """A context to try a model with: embeds without pooling. Raises as the constructor."""
        return cls(
            model,
            n_ctx=_TINY,
            n_batch=_TINY,
            n_ubatch=_TINY,
            n_seq_max=1,
            threads=threads,
            embeddings=True,
            pooling="none",
        )

    def resized(self, n_ctx: int, head_of: LlamaContext | None = None) -> LlamaContext:
        """An empty context of other length, which `become` takes. Raises as the constructor."""
        return self._alike(n_ctx=n_ctx, head_of=head_of)

    def become(self, other: LlamaContext) -> None:
        """Free the cells of this context and have those of `other`, which must not be used again."""
        self.close()
        self.pointer, other.pointer = other.pointer, None
        self.n_ctx, self.abort_flag, self._memory = other.n_ctx, other.abort_flag, other._memory
        self._rolled_back.clear()

    def close(self) -> None:
        if self.pointer:
            lib.llama_free(self.pointer)
            self.pointer = None

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend only to earlier ones, in a cache."""
        return bool(self._memory) and bool(lib.llama_get_causal_attn(self.pointer))

    @property
    def max_rollback(self) -> int:
        """`llama_n_rs_seq`: 0 if llama.cpp cannot for this architecture (llm_arch_supports_rs_rollback)."""
        return int(lib.llama_n_rs_seq(self.pointer))

    def set_adapters(self, pointers: Sequence[Any], scales: Sequence[float]) -> None:
        """`llama_set_adapters_lora`: use exactly these LoRA adapters for the next decodes. Free if they apply already;
        otherwise the next decode reserves its graph again."""
        count = len(pointers)
        array = (lib.llama_adapter_lora_p_ctypes * count)(*pointers)
        lib.llama_set_adapters_lora(self.pointer, array, count, (ctypes.c_float * count)(*scales))

    def set_embeddings(self, enabled: bool) -> None:
        """`llama_set_embeddings`: whether the next decodes return embeddings, for all their tokens."""
        lib.llama_set_embeddings(self.pointer, enabled)

    def decode(self, batch: Batch | EmbeddingBatch, meanwhile: Callable[[], None] | None = None) -> int:
        """`llama_decode`; blocks, with the GIL released, until the outputs are ready. Returns its code. 1: no cells,
        nothing changed. 2: aborted; below 0: fatal (part of the batch may be in memory). meanwhile: called once the
        work is handed over. A device computes while it runs; the CPU has computed then."""
        batch.raw.n_tokens = batch.size
        if not batch.is_causal:
            lib.llama_set_causal_attn(self.pointer, False)
        code = int(lib.llama_decode(self.pointer, batch.raw))
        if not batch.is_causal:
            lib.llama_set_causal_attn(self.pointer, True)
        if meanwhile is not None:
            meanwhile()
        if code == DECODE_OK:
            lib.llama_synchronize(self.pointer)
            if self._rolled_back:
                self._rolled_back.difference_update(batch.seq_ids())
        return code

    def logits(self, index: int) -> Floats:
        """The logits of batch index `index`: a writable view, valid until the next decode. Shape (n_vocab,)."""
        row = lib.llama_get_logits_ith(self.pointer, index)
        # For each sampled token: np.ctypeslib.as_array takes several times as long.
        values: Any = self._logits_row.from_address(ctypes.addressof(row.contents))
        return np.frombuffer(values, np.float32)

    def output_hidden(self) -> None:
        """`llama_set_embeddings_nextn`: the next decodes return a hidden state for each of their tokens."""
        extension().llama_set_embeddings_nextn(self.pointer, True, False)

    def hidden(self, first: int, end: int) -> Floats:
        """The hidden states of batch indices first … end-1: a view, valid until the next decode."""
        rows = extension().llama_get_embeddings_nextn(self.pointer)
        if not rows:
            raise ValueError("this context returns no hidden states")
        return np.ctypeslib.as_array(rows, shape=(end, self.model.n_embd))[first:]

    def sequence_embedding(self, seq_id: int, size: int) -> Floats:
        """The pooled embedding of a sequence of the last batch (copied). Shape (size,)."""
        row = lib.llama_get_embeddings_seq(self.pointer, seq_id)
        if not row:
            raise ValueError("this context does not pool")
        return np.ctypeslib.as_array(row, shape=(size,)).copy()

    def token_embeddings(self, count: int, size: int) -> Floats:
        """Embeddings of the first `count` tokens of the last batch, without pooling. Shape (count, size). A view, valid
        until the next decode."""
        rows = lib.llama_get_embeddings(self.pointer)
        if not rows:
            raise ValueError("the last batch has no embeddings")
        return np.ctypeslib.as_array(rows, shape=(count, size))

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """`llama_memory_seq_cp`: share the first `length` cells of a sequence. Copies no data in a unified cache."""
        lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    @property
    def has_window(self) -> bool:
        """Whether some blocks have a sliding window, so that saved states hold only the last tokens of those."""
        return self._n_swa > 0

    def reaches_back(self, seq_id: int, length: int) -> bool:
        """Whether a sequence has all cells that a token after its first `length` ones attends to. A restored one lacks
        those outside the sliding window of its end, which llama.cpp omits from saved states."""
        if not self._n_swa:
            return True
        first = int(lib.llama_memory_seq_pos_min(self._memory, seq_id))
        return 0 <= first <= max(0, length - self._n_swa)

    def replace_prefix(self, source: int, target: int, length: int) -> bool:
        """Share the first `length` cells of `source` in place of `target`'s own cells with the same content. False, and
        nothing changes, if the memory cannot be cut there."""
        # A recurrent memory would report success, and copy the whole state of `source`.
        if self._n_swa or self.model.is_recurrent:
            return False
        if not lib.llama_memory_seq_rm(self._memory, target, 0, length):
            return False
        lib.llama_memory_seq_cp(self._memory, source, target, 0, length)
        return True

    def copy_all(self, source: int, target: int) -> None:
        """Share a whole sequence, recurrent state included."""
        if source in self._rolled_back:
            self._settle(source)
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def truncate(self, seq_id: int, length: int) -> bool:
        """Drop the cells of a sequence from position `length` on. False if the memory cannot be cut there."""
        is_cut = bool(lib.llama_memory_seq_rm(self._memory, seq_id, length, -1))
        if is_cut and self._rolls_back:
            self._rolled_back.add(seq_id)
        return is_cut

    def _settle(self, seq_id: int) -> None:
        """Make the state to which a sequence was rolled back its own: a copy would share the later one."""
        flags = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        size = int(lib.llama_state_seq_get_size_ext(self.pointer, seq_id, flags))
        data = np.empty(size, np.uint8)
        state = _pointer(data, ctypes.c_uint8)
        written = int(lib.llama_state_seq_get_data_ext(self.pointer, state, size, seq_id, flags))
        read = int(lib.llama_state_seq_set_data_ext(self.pointer, state, written, seq_id, flags))
        if not written or read != written:
            raise EngineFailure(f"llama.cpp could not restore the recurrent state of sequence {seq_id}")
        self._rolled_back.discard(seq_id)

    def remove(self, seq_id: int) -> None:
        """Drop a sequence; shared cells stay with the others."""
        self._rolled_back.discard(seq_id)
        lib.llama_memory_seq_rm(self._memory, seq_id, -1, -1)

    def state_bytes(self, seq_id: int) -> int:
        """`llama_state_seq_get_size`: the size of `save_sequence`."""
        return int(lib.llama_state_seq_get_size(self.pointer, seq_id))

    def save_sequence(self, seq_id: int) -> SequenceBytes:
        """`llama_state_seq_get_data`: the state of a sequence as llama.cpp writes it. Blocks for the copy. Only a
        context of the same weights, KV types and llama.cpp build can read it."""
        size = self.state_bytes(seq_id)
        data = np.empty(size, np.uint8)
        buffer = _pointer(data, ctypes.c_uint8)
        written = int(lib.llama_state_seq_get_data(self.pointer, buffer, size, seq_id))
        if written == 0 or written > size:
            raise EngineFailure(f"llama.cpp could not save the state of sequence {seq_id}")
        return data[:written]

    def restore_sequence(self, seq_id: int, data: SequenceBytes, length: int) -> bool:
        """`llama_state_seq_set_data` into an empty sequence. The caller must have verified the bytes by a checksum.
        False, and the sequence stays empty, without room, or if the bytes are of another kind of context or not of
        `length` tokens. Where images share positions, of at most so many."""
        data = np.ascontiguousarray(data)
        buffer = _pointer(data, ctypes.c_uint8)
        read = int(lib.llama_state_seq_set_data(self.pointer, buffer, len(data), seq_id))
        last = int(lib.llama_memory_seq_pos_max(self._memory, seq_id))
        is_of_length = 0 <= last < length if self.model.has_mrope else last == length - 1
        if read != len(data) or not is_of_length:
            self.remove(seq_id)
            return False
        return True

    def clear(self) -> None:
        self._rolled_back.clear()
        if self._memory:
            lib.llama_memory_clear(self._memory, True)


def _pointer(array: npt.NDArray[Any], kind: Any) -> Any:
    pointer_to: Any = ctypes.POINTER
    return ctypes.cast(array.ctypes.data, pointer_to(kind))


def _kv_type(name: str, value: str) -> int:
    if value not in KV_TYPES:
        raise SettingsError(f"{name}: {value!r} is not a KV cache type; use one of {', '.join(KV_TYPES)}")
    return KV_TYPES[value]

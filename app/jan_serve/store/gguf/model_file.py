"""Reads the facts of a model from its headers, before a worker loads it, and rejects files that can never be served.

Tensors belong to blocks, input and output as llama.cpp assigns them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.core.models import HeaderFacts
from jan_serve.core.placement import LayerParts, ModelParts
from jan_serve.core.split_names import MAX_PARTS, PartName
from jan_serve.errors import InvalidModel
from jan_serve.store.files import raise_if_exhausted
from jan_serve.store.gguf.gguf_header import STRING, ArrayValue, GgufHeader, TensorInfo, read_gguf_header
from jan_serve.store.gguf.header_checks import check_model, check_weights
from jan_serve.store.gguf.quantisation import FILE_TYPES, quantisation_of

_BLOCK_TENSOR: Final = re.compile(r"blk\.(\d+)\.")
_EXPERTS: Final = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps")
_INPUT: Final = re.compile(r"token_embd|token_types|position_embd|per_layer_token_embd|rope_freqs")
_EMBEDDINGS: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_HEAD: Final = ".nextn.eh_proj.weight"
_MAX_LENGTH: Final = 1 << 17
"""Wider than any model. Beyond it, a damaged file would seem too large for the memory."""
_SCAN_WIDTH: Final = 14
"""Values of a token that a selective scan keeps at once, in its inner widths: as measured with llama.cpp's buffers."""


def parts_of(
    header: GgufHeader,
    tensors: Iterable[TensorInfo],
    n_layer: int,
    overrides: Sequence[tuple[str, str]] = (),
    *,
    with_heads: bool = False,
) -> ModelParts:
    """header: with the model's keys. tensors: of all its files. overrides: as in PlacementOptions. with_heads: those
    that predict further tokens are to be loaded."""
    patterns = [(re.compile(pattern), device) for pattern, device in overrides]
    architecture = header.text("general.architecture") or ""
    n_ahead = min(n_layer, length_of(header, f"{architecture}.nextn_predict_layers"))
    n_loaded = n_layer - (0 if with_heads else n_ahead)
    heads: set[int] = set()
    dense, experts = [0] * n_layer, [0] * n_layer
    sizes = {"input": 0, "output": 0}
    pinned: dict[str, int] = {}
    largest = embeddings = 0
    has_output = False
    for tensor in tensors:
        match = _BLOCK_TENSOR.match(tensor.name)
        layer = int(match[1]) if match else None
        if layer is not None and tensor.name.endswith(_HEAD):
            heads.add(layer)
        if layer is not None and layer >= n_loaded:
            continue
        if tensor.name == _EMBEDDINGS:
            embeddings = tensor.n_bytes
        has_output = has_output or tensor.name == _OUTPUT
        device = next((name for pattern, name in patterns if pattern.search(tensor.name)), None)
        if device is not None:
            pinned[device] = pinned.get(device, 0) + tensor.n_bytes
        elif layer is not None:
            largest = max(largest, tensor.n_bytes)
            (experts if _EXPERTS.search(tensor.name) else dense)[layer] += tensor.n_bytes
        else:
            sizes["input" if _INPUT.match(tensor.name) else "output"] += tensor.n_bytes
    elements = cache_elements(header, architecture, n_layer)
    states = _state_elements(header, architecture, n_layer, [heads == 0 for heads, _ in elements])
    layers = tuple(
        LayerParts(dense[at], experts[at], *elements[at], states[at]) if at < n_loaded else LayerParts(0)
        for at in range(n_layer)
    )
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return ModelParts(
        layers=layers,
        input_bytes=sizes["input"],
        output_bytes=sizes["output"] + (0 if has_output else embeddings),
        tied_output=not has_output,
        largest_tensor=largest,
        n_expert=length_of(header, f"{architecture}.expert_count"),
        n_expert_used=length_of(header, f"{architecture}.expert_used_count"),
        n_embd=length_of(header, f"{architecture}.embedding_length"),
        n_vocab=tokens.length if isinstance(tokens, ArrayValue) else 0,
        n_head=max(per_layer(header, f"{architecture}.attention.head_count", n_layer), default=0),
        width=_width(header, architecture, n_layer),
        pinned=tuple(pinned.items()),
        n_ahead=len(heads) if len(heads) == n_ahead else 0,
    )


def cache_elements(header: GgufHeader, architecture: str, n_layer: int) -> list[tuple[int, int]]:
    """KV cache elements of K and V per token and block, as llama.cpp computes them (llama_hparams). Blocks without
    attention have no KV heads, or are not the last of so many. Sliding windows of some blocks are not subtracted."""
    prefix = f"{architecture}.attention"
    heads = per_layer(header, f"{prefix}.head_count", n_layer)
    kv_heads = per_layer(header, f"{prefix}.head_count_kv", n_layer) or heads
    n_embd = length_of(header, f"{architecture}.embedding_length")
    width = n_embd // max(heads) if any(heads) else 0
    k_width = length_of(header, f"{prefix}.key_length") or width
    v_width = length_of(header, f"{prefix}.value_length") or width
    counts = [*kv_heads, *([0] * n_layer)][:n_layer]
    if interval := length_of(header, f"{architecture}.full_attention_interval"):
        last = n_layer - length_of(header, f"{architecture}.nextn_predict_layers")
        counts = [0 if at < last and (at + 1) % interval else count for at, count in enumerate(counts)]
    return [(count * k_width, count * v_width) for count in counts]


def per_layer(header: GgufHeader, key: str, n_layer: int) -> list[int]:
    """A value per block, given as one number or an array; empty if missing."""
    value = header.metadata.get(key)
    if isinstance(value, ArrayValue):
        items = [item for item in value.items if isinstance(item, int) and 0 <= item <= _MAX_LENGTH]
        return items[:n_layer]
    number = length_of(header, key)
    return [number] * n_layer if number else []


def length_of(header: GgufHeader, key: str) -> int:
    """0 if missing or invalid: it only feeds an estimate, and llama.cpp rejects unusable values."""
    value = header.metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= _MAX_LENGTH else 0


def _state_elements(header: GgufHeader, architecture: str, n_layer: int, recurrent: list[bool]) -> list[int]:
    """float32 values of a sequence's state in each block (llama_hparams::n_embd_r, n_embd_s)."""

    def length(key: str) -> int:
        return length_of(header, f"{architecture}.{key}")

    n_embd, short, head = length("embedding_length"), length("shortconv.l_cache"), length("wkv.head_size")
    conv, inner = length("ssm.conv_kernel"), length("ssm.inner_size")
    state, groups = length("ssm.state_size"), length("ssm.group_count")
    shifts = length("token_shift_count") or 2
    if conv and inner:
        size = (conv - 1) * (inner + 2 * groups * state) + state * inner
    elif head:
        size = shifts * n_embd + n_embd * head
    else:
        size = n_embd * (short - 1) if short else 0
    return [size if each else 0 for each in recurrent]


def _width(header: GgufHeader, architecture: str, n_layer: int) -> int:
    """The most values of a token at once: of a feed-forward layer its input, output and both products; or of a scan."""
    n_embd = length_of(header, f"{architecture}.embedding_length")
    dense = max(per_layer(header, f"{architecture}.feed_forward_length", n_layer), default=0)
    used = length_of(header, f"{architecture}.expert_used_count")
    expert = length_of(header, f"{architecture}.expert_feed_forward_length") or (dense if used else 0)
    recurrent = _SCAN_WIDTH * length_of(header, f"{architecture}.ssm.inner_size")
    return max(2 * n_embd + max(2 * dense, used * (2 * expert + n_embd)), recurrent)


_MAX_TITLE: Final = 256
_POOLING_NAMES: Final = ("none", "mean", "cls", "last", "rank")


class ModelFile(msgspec.Struct, frozen=True):
    """Facts of a model from its headers. Sizes in bytes.

    paths: the file, or all parts of a split model in order; llama.cpp loads the first.
    file_bytes: of all parts.
    parts: where its bytes are.
    pooling: None if the header has none.
    n_parameters: elements of all tensors. quantisation: from general.file_type, for example Q4_K_M.
    n_head: the maximum over the blocks. fills_gaps: the header names tokens for fill-in-the-middle.
    """

    paths: tuple[Path, ...]
    architecture: str
    name: str | None
    file_bytes: int
    n_ctx_train: int | None
    n_layer: int
    parts: ModelParts
    tensor_bytes: int
    chat_template: str | None
    pooling: str | None
    n_parameters: int = 0
    quantisation: str | None = None
    n_embd: int = 0
    n_vocab: int = 0
    n_head: int = 0
    fills_gaps: bool = False

    @property
    def path(self) -> Path:
        """The file that the worker loads."""
        return self.paths[0]

    @property
    def k_elements(self) -> int:
        """Elements of K in the KV cache per token, over all blocks; `v_elements` likewise."""
        return sum(layer.k_elements for layer in self.parts.layers)

    @property
    def v_elements(self) -> int:
        return sum(layer.v_elements for layer in self.parts.layers)

    def facts(self, thinks: Callable[[str], bool] | None = None) -> HeaderFacts:
        """The facts that the index keeps. A quantisation in the file's name is more exact than the header's. thinks:
        whether a chat template writes thoughts; without it, the facts do not say so."""
        template = self.chat_template
        return HeaderFacts(
            architecture=self.architecture[:_MAX_TITLE],
            title=None if self.name is None else self.name[:_MAX_TITLE],
            n_ctx_train=self.n_ctx_train,
            n_parameters=self.n_parameters,
            quantisation=quantisation_of(self.path.name) or self.quantisation,
            has_chat_template=template is not None,
            thinks=None if thinks is None else template is not None and thinks(template),
            pooling=self.pooling,
            fills_gaps=self.fills_gaps,
            n_embd=self.n_embd,
        )


def read_model_file(path: Path) -> ModelFile:
    """Read the header of `path`, and of the other parts of a split model. Blocks on the disk. Raises InvalidModel."""
    header = read_gguf_header(path)
    headers = (header, *_other_parts(header))
    architecture = header.text("general.architecture")
    if not architecture:
        raise InvalidModel(f"{path.name}: the key general.architecture is missing")
    _check_kind(header, architecture)
    check_model(headers, architecture)
    tensors = [tensor for part in headers for tensor in part.tensors]
    n_layer = header.integer(f"{architecture}.block_count") or 0
    parts = parts_of(header, tensors, n_layer)
    template = header.metadata.get("tokenizer.chat_template")
    file_type = header.integer("general.file_type")
    return ModelFile(
        paths=tuple(part.path for part in headers),
        architecture=architecture,
        name=header.text("general.name"),
        file_bytes=sum(part.file_size for part in headers),
        n_ctx_train=header.integer(f"{architecture}.context_length"),
        n_layer=n_layer,
        parts=parts,
        tensor_bytes=sum(tensor.n_bytes for tensor in tensors),
        chat_template=template if isinstance(template, str) else None,
        pooling=_pooling(header, architecture),
        n_parameters=sum(math.prod(tensor.shape) for tensor in tensors),
        quantisation=None if file_type is None else FILE_TYPES.get(file_type),
        n_embd=parts.n_embd,
        n_vocab=parts.n_vocab,
        n_head=parts.n_head,
        fills_gaps=all(_has_gap_token(header, role) for role in ("prefix", "suffix", "middle")),
    )


def read_model_parts(
    model: ModelFile, overrides: Sequence[tuple[str, str]], *, with_heads: bool
) -> ModelParts:
    """The parts, as `parts_of` counts them with these. Blocks on the disk. Raises InvalidModel."""
    headers = [read_gguf_header(path) for path in model.paths]
    tensors = [tensor for part in headers for tensor in part.tensors]
    return parts_of(headers[0], tensors, model.n_layer, overrides, with_heads=with_heads)


def _has_gap_token(header: GgufHeader, role: str) -> bool:
    """Whether the header names this fill-in-the-middle token, by its newer or older key."""
    return any(f"tokenizer.ggml.{key}_token_id" in header.metadata for key in (f"fim_{role[:3]}", role))


def _check_kind(header: GgufHeader, architecture: str) -> None:
    kind, file = header.text("general.type"), header.path.name
    if kind == "adapter":
        raise InvalidModel(f"{file} is a LoRA adapter: it applies to a model and is not one itself")
    if kind == "mmproj" or architecture == "clip":
        raise InvalidModel(f"{file} is a multimodal projector: it belongs to a model and is not one itself")
    if not header.tensors and header.integer("split.count") is None:
        raise InvalidModel(f"{file} has no tensors: it holds a vocabulary only")


def _other_parts(first: GgufHeader) -> list[GgufHeader]:
    """The headers of a split model's further parts; the first part's name must agree with `split.count`."""
    count = first.integer("split.count") or 1
    if count <= 1:
        return []
    if count > MAX_PARTS:
        raise InvalidModel(f"{first.path.name}: it is split into {count} files, more than {MAX_PARTS}")
    name = PartName.parse(first.path.name)
    if name is None or (name.number, name.count) != (1, count) or first.integer("split.no") != 0:
        raise InvalidModel(
            f"{first.path.name}: a model in {count} files is loaded by its first, which must be named"
            f" NAME-00001-of-{count:05}.gguf"
        )
    parts: list[GgufHeader] = []
    for number, file in enumerate(name.all_files()[1:], 2):
        path = first.path.with_name(file)
        if not path.is_file():
            raise InvalidModel(f"{first.path.name}: {path.name}, part {number} of {count}, is missing")
        part = read_gguf_header(path)
        if part.integer("split.no") != number - 1 or part.integer("split.count") != count:
            raise InvalidModel(f"{path.name} is not part {number} of {count}: its header says otherwise")
        parts.append(part)
    return parts


def _pooling(header: GgufHeader, architecture: str) -> str | None:
    value = header.integer(f"{architecture}.pooling_type")
    if value is None or value < 0:
        return None
    if value >= len(_POOLING_NAMES):
        raise InvalidModel(f"{header.path.name}: the pooling type {value} is not known")
    return _POOLING_NAMES[value]


_PROJECTOR_OUTPUTS: Final = (
    ("mm.2.weight", 1),
    ("mm.input_projection.weight", 0),
    ("mm.model.fc.weight", 1),
    ("mm.model.mlp.3.weight", 1),
    ("mm.0.weight", 1),
)
"""The last tensors of common projectors, and the dimension that is the model's width."""

_MARKS: Final = tuple(
    key + struct.pack("<IQ", STRING, len(value)) + value
    for key, value in ((b"general.type", b"mmproj"), (b"general.architecture", b"clip"))
)
"""Keys with their values, as a GGUF file has them."""


_FIRST_BYTES: Final = 4096


class ProjectorFile(msgspec.Struct, frozen=True):
    """senses: of vision and audio. width: embedding length of its models; None if its kind is unknown here."""

    path: Path
    senses: tuple[str, ...]
    width: int | None
    file_bytes: int

    def fits(self, n_embd: int) -> bool:
        return self.width is None or self.width == n_embd

    @property
    def memory_bytes(self) -> int:
        """Its bytes, and a quarter more for its activations; llama.cpp gives no figure."""
        return self.file_bytes * 5 // 4


def is_projector_file(path: Path) -> bool:
    """Whether the first keys of a GGUF file say so. Blocks briefly on the disk. False if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_FIRST_BYTES)
    except OSError as error:
        raise_if_exhausted(error)
        return False
    return head.startswith(b"GGUF") and any(mark in head for mark in _MARKS)


def read_projector(path: Path) -> ProjectorFile:
    """Read the header. Blocks on the disk. Raises InvalidModel, also for a file that is no projector."""
    header = read_gguf_header(path)
    if header.text("general.architecture") != "clip":
        raise InvalidModel(f"{path.name} is no multimodal projector")
    check_weights(header)
    senses = (("vision", "clip.has_vision_encoder"), ("audio", "clip.has_audio_encoder"))
    return ProjectorFile(
        path=path,
        senses=tuple(sense for sense, key in senses if header.metadata.get(key) is True),
        width=_projected_width(header),
        file_bytes=header.file_size,
    )


def _projected_width(header: GgufHeader) -> int | None:
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    for name, dimension in _PROJECTOR_OUTPUTS:
        shape = shapes.get(name, ())
        if dimension < len(shape):
            return shape[dimension]
    return None

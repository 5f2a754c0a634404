"""A LlamaModel is a loaded GGUF model (weights, vocabulary, metadata), and a LlamaAdapter a LoRA adapter of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from jan_serve.core.placement import LlamaPlacement
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import InvalidModel, SettingsError

_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2}  # enum llama_split_mode


class _Override(ctypes.Structure):
    """Layout of llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def placement_params(params: Any, placement: LlamaPlacement) -> list[Any]:
    """Set the fields. Returns what must live as long as the model. Raises SettingsError for an unknown device."""
    devices = [*(_known(name, backend.device_pointer(name)) for name in placement.devices), None]
    pointers = (ctypes.c_void_p * len(devices))(*devices)
    params.devices = ctypes.cast(pointers, ctypes.c_void_p)
    params.n_gpu_layers = placement.n_gpu_layers if placement.devices else 0
    params.split_mode = _SPLIT_MODES[placement.split_mode]
    params.main_gpu = placement.main_gpu if placement.split_mode == "row" else 0
    kept: list[Any] = [pointers]
    if placement.tensor_split:
        # llama.cpp reads a value for every device that it can have.
        most = int(lib.llama_max_devices())
        split = (ctypes.c_float * most)(*placement.tensor_split[:most])
        params.tensor_split = split
        kept.append(split)
    if placement.overrides:
        rows = [
            (pattern.encode("utf-8"), _known(name, backend.buffer_type(name)))
            for pattern, name in placement.overrides
        ]
        overrides = (_Override * (len(rows) + 1))(*rows, (None, None))
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        kept += [overrides, rows]
    return kept


def _known(name: str, pointer: int | None) -> int:
    if pointer is None:
        known = ", ".join(info.name for info in backend.devices())
        raise SettingsError(f"device: ggml has no device {name!r}; it has {known}")
    return pointer


_MAX_METADATA_VALUE = 4096
_MAX_REASON = 400
_POOLING_NAMES = {-1: "unspecified", 0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_MROPE = (lib.LLAMA_ROPE_TYPE_MROPE, lib.LLAMA_ROPE_TYPE_IMROPE)
_TEMPLATE_KEY = "tokenizer.chat_template"


class LlamaModel:
    """Wraps `llama_model`. Blocks while it loads; `close()` frees the weights."""

    def __init__(
        self,
        path: str,
        *,
        placement: LlamaPlacement | None = None,
        use_mmap: bool = True,
        use_mlock: bool = False,
        use_repack: bool = True,
        vocab_only: bool = False,
        with_heads: bool = False,
        on_progress: Callable[[float], bool] | None = None,
    ) -> None:
        """Load a GGUF file (the first part, if it is split).

        placement: None: on the CPU. on_progress: gets the loaded fraction and returns whether to continue. use_repack:
        weights may be reordered for the kernels of this CPU (`use_extra_bufts`), into copies that are not mapped.
        with_heads: also those that predict further tokens, if it has them (`load_mtp`).
        Raises InvalidModel if llama.cpp rejects the file, SettingsError for an unknown device.
        """
        params = lib.llama_model_default_params()
        self._placed = placement_params(params, placement or LlamaPlacement())
        params.vocab_only = vocab_only
        params.load_mtp = with_heads
        params.load_mode = _load_mode(use_mmap, use_mlock)
        params.use_extra_bufts = use_repack
        if on_progress is not None:
            self._progress = _progress_callback(on_progress)
            params.progress_callback = self._progress
        with backend.last_error() as error:
            pointer = lib.llama_model_load_from_file(path.encode("utf-8"), params)
        if not pointer:
            raise InvalidModel(f"llama.cpp cannot load {Path(path).name}: {_reason(path, error.lines)}")
        self.pointer: Any = pointer
        self.vocab = Vocab(lib.llama_model_get_vocab(pointer))

    def close(self) -> None:
        """Free the weights. Contexts of this model must be closed first."""
        if self.pointer:
            lib.llama_model_free(self.pointer)
            self.pointer = None

    @property
    def description(self) -> str:
        """llama.cpp's short description, such as "qwen2 1B Q4_K - Medium"."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.pointer, buffer, 256)
        return buffer.value.decode("utf-8", "replace")

    @property
    def architecture(self) -> str:
        """Empty if the file names none."""
        return self.metadata().get("general.architecture", "")

    @property
    def n_ctx_train(self) -> int:
        return int(lib.llama_model_n_ctx_train(self.pointer))

    @property
    def n_embd(self) -> int:
        """Width of the embeddings that the model returns."""
        return int(lib.llama_model_n_embd_out(self.pointer))

    @property
    def n_embd_inp(self) -> int:
        """Width of the embeddings that the model reads, in place of tokens."""
        return int(lib.llama_model_n_embd_inp(self.pointer))

    @property
    def has_mrope(self) -> bool:
        """Whether tokens have positions in several dimensions, so that cells of an image share one in the first."""
        return int(lib.llama_model_rope_type(self.pointer)) in _MROPE

    @property
    def n_layer(self) -> int:
        return int(lib.llama_model_n_layer(self.pointer))

    @property
    def n_heads_ahead(self) -> int:
        """Heads that predict further tokens (MTP), loaded or not."""
        return int(lib.llama_model_n_layer_nextn(self.pointer))

    @property
    def n_params(self) -> int:
        return int(lib.llama_model_n_params(self.pointer))

    @property
    def size_bytes(self) -> int:
        return int(lib.llama_model_size(self.pointer))

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer has a recurrent state, so that sequences cannot be truncated."""
        return bool(lib.llama_model_is_recurrent(self.pointer)) or bool(
            lib.llama_model_is_hybrid(self.pointer)
        )

    @property
    def n_swa(self) -> int:
        """Size of the sliding window in tokens; 0 without one."""
        return int(lib.llama_model_n_swa(self.pointer))

    @property
    def is_diffusion(self) -> bool:
        """Whether it is a diffusion model, which denoises many tokens at once (LLaDA, Dream, …)."""
        return bool(lib.llama_model_is_diffusion(self.pointer))

    @property
    def has_encoder(self) -> bool:
        """Whether it encodes its prompt apart (T5 and others)."""
        return bool(lib.llama_model_has_encoder(self.pointer))

    @property
    def n_cls_out(self) -> int:
        """Outputs of the classifier head; for rank pooling only."""
        return int(lib.llama_model_n_cls_out(self.pointer))

    def score_labels(self) -> tuple[str, ...]:
        """Names of the classifier's outputs; empty if the file names none."""
        labels: list[bytes | None] = [
            lib.llama_model_cls_label(self.pointer, index) for index in range(self.n_cls_out)
        ]
        return tuple((label or b"").decode("utf-8", "replace") for label in labels) if any(labels) else ()

    def metadata(self) -> dict[str, str]:
        """All scalar keys of the GGUF except templates (see chat_templates). Long values are truncated."""
        found: dict[str, str] = {}
        buffer = ctypes.create_string_buffer(_MAX_METADATA_VALUE)
        for i in range(int(lib.llama_model_meta_count(self.pointer))):
            lib.llama_model_meta_key_by_index(self.pointer, i, buffer, _MAX_METADATA_VALUE)
            key = buffer.value.decode("utf-8", "replace")
            lib.llama_model_meta_val_str_by_index(self.pointer, i, buffer, _MAX_METADATA_VALUE)
            if not key.startswith(_TEMPLATE_KEY):
                found[key] = buffer.value.decode("utf-8", "replace")
        return found

    def chat_templates(self) -> dict[str, str]:
        """The GGUF's chat templates by name; "default" is the unnamed one."""
        found: dict[str, str] = {}
        default = lib.llama_model_chat_template(self.pointer, None)
        if default:
            found["default"] = default.decode("utf-8", "replace")
        buffer = ctypes.create_string_buffer(256)
        for i in range(int(lib.llama_model_meta_count(self.pointer))):
            lib.llama_model_meta_key_by_index(self.pointer, i, buffer, 256)
            key = buffer.value.decode("utf-8", "replace")
            if key.startswith(_TEMPLATE_KEY + ".") and key != _TEMPLATE_KEY + "s":
                name = key[len(_TEMPLATE_KEY) + 1 :]
                named = lib.llama_model_chat_template(self.pointer, name.encode("utf-8"))
                if named:
                    found[name] = named.decode("utf-8", "replace")
        return found

    def default_pooling(self) -> str:
        """The GGUF's pooling, or "unspecified"."""
        metadata = self.metadata()
        value = metadata.get(f"{metadata.get('general.architecture', '')}.pooling_type")
        return (
            _POOLING_NAMES.get(int(value), "unspecified")
            if value is not None and value.isdigit()
            else "unspecified"
        )


def _reason(path: str, errors: Sequence[str]) -> str:
    """Why llama.cpp rejects a file, from its log. A line with the path says no more than that it does."""
    reasons = (line.partition("error loading model: ")[2] for line in errors)
    unknown = "it is damaged, or of an architecture that llama.cpp does not know"
    return next((reason[:_MAX_REASON] for reason in reasons if reason and path not in reason), unknown)


def _progress_callback(on_progress: Callable[[float], bool]) -> Any:
    def call(fraction: float, _user: Any) -> bool:
        return on_progress(float(fraction))

    return lib.llama_progress_callback(call)


def _load_mode(use_mmap: bool, use_mlock: bool) -> int:
    """enum llama_load_mode: none 0, mmap 1, mlock 2, mmap and mlock 3."""
    return int(use_mmap) + 2 * int(use_mlock)


class LlamaAdapter:
    """Wraps `llama_adapter_lora`. The model frees it; contexts created before it must not use it."""

    def __init__(self, model: LlamaModel, path: str, name: str) -> None:
        """Load a GGUF file with a validated header; blocks. Raises InvalidModel, which names the adapter."""
        with backend.last_error() as error:
            pointer = lib.llama_adapter_lora_init(model.pointer, path.encode("utf-8"))
        if not pointer:
            reason = error.text or "llama.cpp gives no reason"
            raise InvalidModel(f"The LoRA adapter `{name}` does not go with this model: {reason}.")
        self.name = name
        self.pointer: Any = pointer
        if int(lib.llama_adapter_get_alora_n_invocation_tokens(pointer)):
            raise InvalidModel(
                f"The LoRA adapter `{name}` is an activated one (aLoRA), which begins to apply in the middle of a"
                " prompt. Those are not supported."
            )

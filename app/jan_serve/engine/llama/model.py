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
from jan_serve.errors import InvalidModel

_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2}  # enum llama_split_mode


class _Override(ctypes.Structure):
    """Layout of llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def placement_params(params: Any, placement: LlamaPlacement) -> list[Any]:
    """Set the fields. Returns what must live as long as the model. Raises SettingsError for an unknown device."""
    devices = [*(backend.device_pointer(name) for name in placement.devices), None]
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
        rows = [(pattern.encode("utf-8"), backend.buffer_type(name)) for pattern, name in placement.overrides]
        overrides = (_Override * (len(rows) + 1))(*rows, (None, None))
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        kept += [overrides, rows]
    return kept


_MAX_METADATA_VALUE = 4096
_MAX_REASON = 400
_POOLING_NAMES = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
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
        params.load_mode = int(use_mmap) + 2 * int(use_mlock)  # enum llama_load_mode
        params.use_extra_bufts = use_repack
        if on_progress is not None:

            def report(fraction: float, _user: Any) -> bool:
                return on_progress(float(fraction))

            self._progress = lib.llama_progress_callback(report)
            params.progress_callback = self._progress
        with backend.last_errors() as errors:
            pointer = lib.llama_model_load_from_file(path.encode("utf-8"), params)
        if not pointer:
            raise InvalidModel(f"llama.cpp cannot load {Path(path).name}: {_reason(path, errors)}")
        self.pointer: Any = pointer
        self.vocab = Vocab(lib.llama_model_get_vocab(pointer))
        description = ctypes.create_string_buffer(256)
        lib.llama_model_desc(pointer, description, 256)
        self.description = description.value.decode("utf-8", "replace")  # such as "qwen2 1B Q4_K - Medium"
        self.architecture = self.metadata().get("general.architecture", "")
        self.n_ctx_train = int(lib.llama_model_n_ctx_train(pointer))
        self.n_layer = int(lib.llama_model_n_layer(pointer))
        self.n_params = int(lib.llama_model_n_params(pointer))
        self.size_bytes = int(lib.llama_model_size(pointer))
        # Widths of the embeddings that it returns, and of those that it reads in place of tokens.
        self.n_embd = int(lib.llama_model_n_embd_out(pointer))
        self.n_embd_inp = int(lib.llama_model_n_embd_inp(pointer))
        self.n_swa = int(lib.llama_model_n_swa(pointer))  # tokens of the sliding window; 0 without one
        # Heads that predict further tokens, loaded or not.
        self.n_heads_ahead = int(lib.llama_model_n_layer_nextn(pointer))
        # Outputs of the classifier; for rank pooling only.
        self.n_cls_out = int(lib.llama_model_n_cls_out(pointer))
        # Whether tokens have positions in several dimensions, so that cells of an image share one in the first.
        self.has_mrope = int(lib.llama_model_rope_type(pointer)) in _MROPE
        # Whether it encodes its prompt apart (T5 and others).
        self.has_encoder = bool(lib.llama_model_has_encoder(pointer))
        # Whether it denoises many tokens at once (LLaDA, …).
        self.is_diffusion = bool(lib.llama_model_is_diffusion(pointer))
        # Whether any layer has a recurrent state, so that sequences cannot be truncated.
        self.is_recurrent = bool(lib.llama_model_is_recurrent(pointer) or lib.llama_model_is_hybrid(pointer))

    def close(self) -> None:
        """Free the weights. Contexts of this model must be closed first."""
        if self.pointer:
            lib.llama_model_free(self.pointer)
            self.pointer = None

    def score_labels(self) -> tuple[str, ...]:
        """Names of the classifier's outputs; empty if the file names none."""
        labels = [lib.llama_model_cls_label(self.pointer, index) or b"" for index in range(self.n_cls_out)]
        return tuple(label.decode("utf-8", "replace") for label in labels) if any(labels) else ()

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
        value = self.metadata().get(f"{self.architecture}.pooling_type", "")
        return _POOLING_NAMES.get(int(value), "unspecified") if value.isdigit() else "unspecified"


def _reason(path: str, errors: Sequence[str]) -> str:
    """Why llama.cpp rejects a file, from its log. A line with the path says no more than that it does."""
    reasons = (line.partition("error loading model: ")[2] for line in errors)
    unknown = "it is damaged, or of an architecture that llama.cpp does not know"
    return next((reason[:_MAX_REASON] for reason in reasons if reason and path not in reason), unknown)


class LlamaAdapter:
    """Wraps `llama_adapter_lora`. The model frees it; contexts created before it must not use it."""

    def __init__(self, model: LlamaModel, path: str, name: str) -> None:
        """Load a GGUF file with a validated header; blocks. Raises InvalidModel, which names the adapter."""
        with backend.last_errors() as errors:
            pointer = lib.llama_adapter_lora_init(model.pointer, path.encode("utf-8"))
        if not pointer:
            last = errors[-1] if errors else "llama.cpp gives no reason"
            reason = last.rpartition(": failed to apply lora adapter: ")[2].rstrip(".")
            raise InvalidModel(f"The LoRA adapter `{name}` does not go with this model: {reason}.")
        self.name = name
        self.pointer: Any = pointer
        if int(lib.llama_adapter_get_alora_n_invocation_tokens(pointer)):
            raise InvalidModel(
                f"The LoRA adapter `{name}` is an activated one (aLoRA), which begins to apply in the middle of a"
                " prompt. Those are not supported."
            )

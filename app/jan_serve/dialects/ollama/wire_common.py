"""Fields that Ollama's requests share, and the counters that end an answer."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import KeepAlive
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, Strings, WireModel
from jan_serve.http.json_body import MemberNames
from jan_serve.image_files.header import MAX_IMAGES

Kind = Literal["integer", "float32", "boolean", "array"]

OPTION_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(
        (
            "temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
            "mirostat_tau", "mirostat_eta", "tfs_z",
        ),
        "float32",
    ),
    **dict.fromkeys(
        (
            "num_predict", "num_ctx", "num_keep", "seed", "top_k", "repeat_last_n", "num_batch", "num_gpu", "main_gpu",
            "num_thread", "draft_num_predict", "mirostat",
        ),
        "integer",
    ),
    **dict.fromkeys(
        ("use_mmap", "use_mlock", "penalize_newline", "numa", "low_vram", "f16_kv", "vocab_only", "logits_all",
         "embedding_only"),
        "boolean",
    ),
    "stop": "array",
}  # fmt: skip
"""All options of Ollama. Those that `parse_options` does not read change the load of a model, or nothing."""

OptionValues = Annotated[
    dict[str, Any] | None,
    MemberNames(frozenset(OPTION_KINDS) - {"mirostat"}),
    AtMost(limits.MAX_OPTIONS, "options"),
    Field(
        description="Sampling and stopping: temperature, top_k, num_predict, stop … Unknown names are ignored."
    ),
]
Images = Annotated[Strings | None, Field(description=f"Images, base64-encoded; {MAX_IMAGES} at most.")]


class ModelFields(WireModel):
    """Names a model. name: the older field."""

    model: str | None = None
    name: str | None = None


class AnswerFields(ModelFields):
    """What chats and texts share."""

    format: Annotated[
        str | dict[str, Any] | None, Field(description="`json`, or a JSON Schema that the answer follows.")
    ] = None
    options: OptionValues = None
    stream: bool | None = True
    keep_alive: KeepAlive = None
    think: Annotated[
        bool | str | None,
        Field(
            description="Whether a reasoning model thinks; `low`, `medium`, `high` or `max` limit its thought."
        ),
    ] = None
    truncate: Annotated[bool | None, Field(description="Ignored: prompts are never shortened.")] = None
    shift: Annotated[bool | None, Field(description="Ignored: answers end where the context ends.")] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Int, Between(0, 20)] | None = None


class OllamaCandidate(TypedDict):
    """bytes: of the token, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class OllamaLogprob(OllamaCandidate):
    top_logprobs: NotRequired[list[OllamaCandidate]]


class Counters(TypedDict):
    """Tokens, and durations in nanoseconds: load and prompt and answer are parts of the total."""

    total_duration: int
    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


class ReplyLine(TypedDict):
    """A whole answer, or a line of a stream: the last one has done_reason and the counters."""

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[str]
    logprobs: NotRequired[list[OllamaLogprob]]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]

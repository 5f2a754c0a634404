"""The kinds of helper process, with their requests and limits. Values only: both ends import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from jan_serve.audio_files import AudioHeader
from jan_serve.core.constraint import (
    CallFrame,
    CompiledGrammar,
    Constraint,
    Explanation,
    GrammarPiece,
    JsonSchemaConstraint,
    PropertyOrder,
    ToolGrammar,
    Whitespace,
)
from jan_serve.core.messages import FormatName
from jan_serve.core.models import HeaderFacts
from jan_serve.core.request import RenderedChat, RenderRequest
from jan_serve.errors import (
    GrammarTooComplex,
    InvalidAudio,
    InvalidDocument,
    InvalidImage,
    InvalidModel,
    InvalidRequest,
    JanServeError,
    TemplateError,
)
from jan_serve.image_files import ImageHeader
from jan_serve.ipc.child_pipe import Frames

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

Q = TypeVar("Q")
A = TypeVar("A")


class Reply(msgspec.Struct, Generic[A], frozen=True, kw_only=True, omit_defaults=True):
    """A result; or code and payload of an error of the `errors` tree; or beyond_limits: too large to be done or sent.

    last: the process takes no request after it.
    """

    result: A | None = None
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    beyond_limits: bool = False
    last: bool = False


@dataclass(frozen=True)
class HelperKind(Generic[Q, A]):
    """One kind of helper process. command: hidden subcommand of jan-serve. name: of a process, in messages.

    too_much: the error for a request beyond the limits. codec: JSON where a message may have integers of any size.

    cpu_limit_s, memory_limit_bytes: what a process allows itself for one request (`child.serve`). wall_limit_s: the
    clock's limit, for busy machines and for platforms without those. wait_limit_s: for a free process.
    """

    command: str
    name: str
    request: Any
    result: Any
    too_much: Callable[[Q], JanServeError]
    cpu_limit_s: float
    memory_limit_bytes: int
    codec: Any = msgspec.msgpack
    wall_limit_s: float = 10.0
    wait_limit_s: float = 60.0
    niceness: int = 0
    processes: int = 2  # two: a request that runs into its limit does not block all others

    @cached_property
    def requests(self) -> Frames[Q]:
        return self._frames(self.request)

    @cached_property
    def replies(self) -> Frames[Reply[A]]:
        return self._frames(Reply[self.result])

    def _frames(self, kind: Any) -> Frames[Any]:
        return Frames(kind, f"message of a {self.name}", f"a {self.name}", MAX_FRAME_BYTES, self.codec)


RENDERING: Final[HelperKind[RenderRequest, RenderedChat]] = HelperKind(
    command="render",
    name="template renderer",
    request=RenderRequest,
    result=RenderedChat,
    too_much=lambda _: TemplateError(
        "the chat template needs more time or memory than one request may use", param="messages"
    ),
    codec=msgspec.json,
    cpu_limit_s=2.0,
    memory_limit_bytes=256 << 20,
)


class ShowConstraint(msgspec.Struct, frozen=True, tag="show"):
    """As GBNF, for people."""

    constraint: Constraint


class ExplainSchema(msgspec.Struct, frozen=True, tag="explain"):
    """Say what a schema costs, or which keyword to change."""

    constraint: JsonSchemaConstraint


class CompileTool(msgspec.Struct, frozen=True, kw_only=True, tag="tool"):
    """Compile the arguments of one tool; arguments of `tool_grammar`."""

    form: FormatName
    parameters: dict[str, Any]
    strict: bool
    whitespace: Whitespace
    order: PropertyOrder


class CompileFrame(msgspec.Struct, frozen=True, kw_only=True, tag="frame"):
    """Compile the frame of calls of the tools with these names; arguments of `call_frame`."""

    form: FormatName
    names: tuple[str, ...]
    parallel: bool
    answer: bool


class CompileAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """Compile a constraint on an answer without a call, in a format that also allows calls."""

    form: FormatName
    constraint: Constraint


CompileRequest = Constraint | ShowConstraint | ExplainSchema | CompileTool | CompileFrame | CompileAnswer
"""A constraint alone is one on a whole answer."""
Compiled = CompiledGrammar | str | Explanation | ToolGrammar | CallFrame | GrammarPiece


COMPILING: Final[HelperKind[CompileRequest, Compiled]] = HelperKind(
    command="compile",
    name="constraint compiler",
    request=CompileRequest,
    result=Compiled,
    too_much=lambda _: GrammarTooComplex("the constraint needs more time or memory than one request may use"),
    codec=msgspec.json,
    # A refusal then takes less than 2 s. The grammar package has a budget of its own; this is the backstop.
    cpu_limit_s=1.75,
    memory_limit_bytes=512 << 20,
)


class DecodeImage(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """data: the file. header: what it must decode to. size: width and height of the pixels that are wanted."""

    data: bytes
    header: ImageHeader
    size: tuple[int, int]


class DecodeAudio(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """data: the file, as its header says. rate: samples a second that are wanted."""

    data: bytes
    header: AudioHeader
    rate: int


class DecodePdf(msgspec.Struct, frozen=True, kw_only=True, tag="pdf"):
    """data: the file, whose text is wanted."""

    data: bytes


DecodeMedia = DecodeImage | DecodeAudio | DecodePdf


def _decoding_too_much(request: DecodeMedia) -> InvalidRequest:
    reason = "needs more time or memory than one file may use"
    if isinstance(request, DecodePdf):
        return InvalidDocument(f"the PDF {reason}")
    if isinstance(request, DecodeImage):
        return InvalidImage(f"the image {reason}")
    return InvalidAudio(f"the audio {reason}")


DECODING: Final[HelperKind[DecodeMedia, bytes]] = HelperKind(
    command="media",
    name="media decoder",
    request=DecodeMedia,
    result=bytes,
    too_much=_decoding_too_much,
    # The largest images take about two seconds on a slow machine, and the longest sounds about three.
    cpu_limit_s=15.0,
    # A transparent image of the largest size takes three copies of 4 bytes a pixel, and each request has half of this.
    memory_limit_bytes=1 << 30,
    wall_limit_s=30.0,
)
"""Results are pixels (RGB8, rows from the top), samples (float32, mono) or text (UTF-8)."""


class ReadHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Read the header of the model whose first file is at `path`."""

    path: str


HEADERS: Final[HelperKind[ReadHeader, HeaderFacts]] = HelperKind(
    command="headers",
    name="reader of headers",
    request=ReadHeader,
    result=HeaderFacts,
    too_much=lambda request: InvalidModel(
        f"{Path(request.path).name}: its header takes too much time or memory to read"
    ),
    # A model in 100 parts with a vocabulary of 262,144 tokens takes some seconds on a slow machine.
    cpu_limit_s=30.0,
    # A header has up to 512 MiB, of which one string may be 64 MiB, and each request has half of this.
    memory_limit_bytes=2 << 30,
    niceness=19,  # the lowest priority: other work may take the whole machine for minutes
    wall_limit_s=600.0,
    processes=1,
)

"""A generation in TGI's terms, before and after its checks: every route turns its request into these."""

from __future__ import annotations

import msgspec

from jan_serve.core.constraint import Constraint
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.tgi.generate.render import Ending
from jan_serve.dialects.tgi.generate.wire import Parameters


class NativeRequest(msgspec.Struct, frozen=True):
    """Not yet checked. add_special: BOS as the model wants it; a rendered chat brings its own.

    constraint: in place of `parameters.grammar`.
    """

    inputs: str
    parameters: Parameters
    stream: bool = False
    add_special: bool = True
    constraint: Constraint | None = None


class Job(msgspec.Struct, frozen=True):
    """A generation that passed the checks. Times are of `time.perf_counter`."""

    native: NativeRequest
    request: GenerationRequest
    model: str
    n_input: int
    compute_type: str
    ending: Ending
    started: float
    validated: float

    @property
    def max_new_tokens(self) -> int:
        return self.ending.max_new_tokens

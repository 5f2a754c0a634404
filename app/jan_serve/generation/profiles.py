"""What is configured for a model, as far as single requests are concerned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from jan_serve.core.request import GenerationRequest
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.generation.template_choice import TemplateOverride

_SAMPLING = frozenset(SamplingParams.__struct_fields__)
_STOPPING = frozenset(StopConditions.__struct_fields__)


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """template: in place of the model's own. defaults: by fields of SamplingParams and StopConditions."""

    template: TemplateOverride | None = None
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ModelProfiles(Protocol):
    """Where profiles come from."""

    def profile(self, model: str) -> ModelProfile:
        """The profile of a model by its canonical name, as of now. Looks at the time of change of a file or two."""
        ...


class NoProfiles:
    """Nothing is configured for any model."""

    def profile(self, model: str) -> ModelProfile:
        """An empty one."""
        return ModelProfile()


def with_defaults(request: GenerationRequest, profile: ModelProfile) -> GenerationRequest:
    """The request, where what its caller did not say is as the model's profile has it."""
    if request.given is None or not profile.defaults:
        return request
    said = {name: value for name, value in profile.defaults.items() if name not in request.given}
    return msgspec.structs.replace(
        request,
        sampling=msgspec.structs.replace(request.sampling, **_part(said, _SAMPLING)),
        stopping=msgspec.structs.replace(request.stopping, **_part(said, _STOPPING)),
    )


def _part(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}

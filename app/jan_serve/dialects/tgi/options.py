"""Settings of TGI's launcher: its limits and its watermark."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jan_serve.config.flags import Flag

_PANEL: Final = "Text Generation Inference"


class TgiOptions(BaseModel):
    """Limits of TGI requests, which /info shows. Lengths are tokens."""

    model_config = ConfigDict(defer_build=True)

    tgi_max_concurrent_requests: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="Maximum number of concurrent generations; further requests get 429.",
        ),
        Flag(_PANEL),
    ] = 128
    tgi_max_best_of: Annotated[int, Field(ge=1, le=64, description="Maximum `best_of`."), Flag(_PANEL)] = 2
    tgi_max_stop_sequences: Annotated[
        int, Field(ge=0, le=64, description="Maximum number of `stop` strings."), Flag(_PANEL)
    ] = 4
    tgi_max_top_n_tokens: Annotated[
        int, Field(ge=0, le=100, description="Maximum `top_n_tokens`."), Flag(_PANEL)
    ] = 5
    tgi_max_client_batch_size: Annotated[
        int, Field(ge=1, le=128, description="Maximum number of prompts in one completion."), Flag(_PANEL)
    ] = 4
    tgi_max_input_tokens: Annotated[
        int | None,
        Field(
            ge=1, description="Maximum prompt length. Default: one token less than `tgi_max_total_tokens`."
        ),
        Flag(_PANEL),
    ] = None
    tgi_max_total_tokens: Annotated[
        int | None,
        Field(ge=2, description="Maximum length of prompt and answer. Default: the context length."),
        Flag(_PANEL),
    ] = None
    tgi_max_body_bytes: Annotated[
        int,
        Field(
            ge=1024, le=1 << 30, description="Maximum size of a request body; `max_body_bytes` also applies."
        ),
        Flag(_PANEL),
    ] = 2_000_000
    tgi_compute_type: Annotated[
        str | None,
        Field(
            pattern=r"^[!-~]{1,100}$",
            description="The header x-compute-type: one word. Default: gpu+optimized or cpu+optimized. COMPUTE_TYPE"
            " also sets it.",
        ),
        Flag(_PANEL, also="COMPUTE_TYPE"),
    ] = None
    watermark_gamma: Annotated[
        float,
        Field(gt=0, lt=1, description="Share of the vocabulary that a watermark prefers."),
        Flag(_PANEL),
    ] = 0.5
    watermark_delta: Annotated[
        float,
        Field(ge=0, le=100, description="Value that a watermark adds to the logits of preferred tokens."),
        Flag(_PANEL),
    ] = 2.0

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        max_input, max_total = self.tgi_max_input_tokens, self.tgi_max_total_tokens
        if max_input is not None and max_total is not None and max_input >= max_total:
            raise ValueError(
                f"tgi_max_input_tokens {max_input} must be below tgi_max_total_tokens {max_total}"
            )
        return self

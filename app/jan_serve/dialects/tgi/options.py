"""Settings of TGI's launcher: its limits and its watermark."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jan_serve.config.fields import setting

_setting: Final = partial(setting, "Text Generation Inference")


class TgiOptions(BaseModel):
    """Limits of TGI requests, which /info shows. Lengths are tokens."""

    model_config = ConfigDict(defer_build=True)

    tgi_max_concurrent_requests: Annotated[int, Field(ge=1, le=100_000)] = _setting(
        128, "Maximum number of concurrent generations; further requests get 429."
    )
    tgi_max_best_of: Annotated[int, Field(ge=1, le=64)] = _setting(2, "Maximum `best_of`.")
    tgi_max_stop_sequences: Annotated[int, Field(ge=0, le=64)] = _setting(
        4, "Maximum number of `stop` strings."
    )
    tgi_max_top_n_tokens: Annotated[int, Field(ge=0, le=100)] = _setting(5, "Maximum `top_n_tokens`.")
    tgi_max_client_batch_size: Annotated[int, Field(ge=1, le=128)] = _setting(
        4, "Maximum number of prompts in one completion."
    )
    tgi_max_input_tokens: Annotated[int | None, Field(ge=1)] = _setting(
        None, "Maximum prompt length. Default: one token less than `tgi_max_total_tokens`."
    )
    tgi_max_total_tokens: Annotated[int | None, Field(ge=2)] = _setting(
        None, "Maximum length of prompt and answer. Default: the context length."
    )
    tgi_max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = _setting(
        2_000_000, "Maximum size of a request body; `max_body_bytes` also applies."
    )
    tgi_compute_type: Annotated[str | None, Field(pattern=r"^[!-~]{1,100}$")] = _setting(
        None,
        "The header x-compute-type: one word. Default: gpu+optimized or cpu+optimized. COMPUTE_TYPE"
        " also sets it.",
        also="COMPUTE_TYPE",
    )
    watermark_gamma: Annotated[float, Field(gt=0, lt=1)] = _setting(
        0.5, "Share of the vocabulary that a watermark prefers."
    )
    watermark_delta: Annotated[float, Field(ge=0, le=100)] = _setting(
        2.0, "Value that a watermark adds to the logits of preferred tokens."
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        max_input, max_total = self.tgi_max_input_tokens, self.tgi_max_total_tokens
        if max_input is not None and max_total is not None and max_input >= max_total:
            raise ValueError(
                f"tgi_max_input_tokens {max_input} must be below tgi_max_total_tokens {max_total}"
            )
        return self

"""llama.cpp's defaults of sampling, for the dialects whose APIs name none that suit any model."""

from __future__ import annotations

from typing import Final

from jan_serve.core.request import SamplingParams

LLAMA_CPP: Final = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)

"""A small real model for the servers of these tests."""

from __future__ import annotations

from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.gguf.models import model_folder as model_folder

"""A small real model for the servers of these tests."""

from __future__ import annotations

from tests.support.models import exact_llama as exact_llama
from tests.support.models import model_folder as model_folder

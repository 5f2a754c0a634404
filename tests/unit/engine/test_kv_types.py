"""The KV types that settings offer are the ones that the engine has."""

from __future__ import annotations

from typing import get_args

from jan_serve.config.model_options import KvType
from jan_serve.core.kv_types import BYTES_PER_ELEMENT
from jan_serve.engine.llama.context import KV_TYPES


def test_every_type_that_can_be_set_can_be_loaded_and_counted() -> None:
    assert set(get_args(KvType)) == KV_TYPES.keys() == BYTES_PER_ELEMENT.keys()

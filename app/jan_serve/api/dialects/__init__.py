"""The public protocols, each in a folder of its own. They share the parts of `api`, and never each other."""

from __future__ import annotations

from typing import Final

from jan_serve.api.dialect import Dialect
from jan_serve.api.dialects.lmdeploy import LMDEPLOY
from jan_serve.api.dialects.openai import JAN
from jan_serve.api.dialects.tgi import TGI

DIALECTS: Final[tuple[Dialect, ...]] = (JAN, TGI, LMDEPLOY)
"""In the order of their routes: the first that has a path serves it."""

"""Imports the parts of LMDeploy that scripts/install-lmdeploy took, without torch and the rest of the package."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / ".venv-clients" / "lmdeploy"
CLIENT_VERSION = "0.12.1"
VERSIONS = (CLIENT_VERSION, "0.18.0")
_ABSENT = ("lmdeploy", "shortuuid", "torch", "transformers")


class _Absent(ModuleType):
    """Has a class of every name: the parts in use mention others, and call none of them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in _ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


def use_lmdeploy(version: str) -> None:
    """Import `lmdeploy` from these parts from now on; only what is missing there is made up."""
    sys.path.insert(0, str(FOLDER / version))
    sys.meta_path.append(_AbsentModules())
    for name in ("lmdeploy.utils", "lmdeploy.logger"):
        module: Any = importlib.import_module(name)
        module.get_logger = logging.getLogger
    ids: Any = importlib.import_module("shortuuid")
    ids.random = lambda: uuid.uuid4().hex[:22]

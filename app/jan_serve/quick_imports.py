"""Imports, and what is made once, without the garbage collector and without what can wait."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Generator
from importlib import import_module
from types import ModuleType, new_class
from typing import Any, Final

UNUSED_BY_SERVERS: Final = (
    "fastapi.openapi.models",
    "fastapi.security",
    "fastapi.security.base",
    "fastapi.security.oauth2",
    "opentelemetry._logs",
    "opentelemetry.metrics",
    "opentelemetry.propagate",
    "opentelemetry.trace",
    "prometheus_client.exposition",
    "uvicorn.supervisors",
)
"""For `classes_on_use`: what FastAPI, prometheus_client and uvicorn import, and a server needs later or never."""


@contextlib.contextmanager
def quick_imports() -> Generator[None]:
    """For a block of imports, which leave no garbage: the collector takes 7 % of the server's start to find that out.

    Afterwards it no longer visits what they made, which lives as long as the process. A full collection takes 50 ms for
    100,000 objects, and the event loop waits for it.
    """
    gc.disable()
    try:
        with _models_built_on_use():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def classes_on_use(*modules: str) -> Generator[None]:
    """For a block that imports packages which take classes from these modules: they are imported when one is used.

    Until then another class stands in, which can be called, asked for attributes, named in annotations and given to
    `isinstance` and `issubclass`; a class that inherits from it imports it. Modules that are imported already stay.
    After the block, whoever imports one gets it.
    """
    stand_ins = {name: _ModuleOfStandIns(name) for name in modules if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


class _ModuleOfStandIns(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn.of(self.__name__, name)


class _StandIn(type):
    """Class of the classes that stand in. Nothing is an instance of a class that is not imported yet."""

    @classmethod
    def of(cls, module: str, name: str) -> type:
        return super().__new__(cls, name, (), {"__module__": module})

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> type:
        """A class that inherits from one that stands in."""
        real = tuple(base._real() if isinstance(base, _StandIn) else base for base in bases)
        return new_class(name, real, options, lambda made: made.update(namespace))

    def _real(cls) -> Any:
        if isinstance(sys.modules.get(cls.__module__), _ModuleOfStandIns):
            del sys.modules[cls.__module__]
        return getattr(import_module(cls.__module__), cls.__name__)

    def _is_imported(cls) -> bool:
        return not isinstance(sys.modules.get(cls.__module__), _ModuleOfStandIns | None)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls._real()(*args, **options)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._real(), name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls._is_imported() and isinstance(instance, cls._real())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls._is_imported() and issubclass(subclass, cls._real())


@contextlib.contextmanager
def _models_built_on_use() -> Generator[None]:
    """Building those that nobody uses, such as FastAPI's of its document, takes 10 % of the server's start.

    pydantic has `defer_build` only for models that ask for it; its default is not public. Where it is not found, or
    pydantic is not imported yet, models are built as usual.
    """
    defaults = getattr(sys.modules.get("pydantic._internal._config"), "config_defaults", {})
    before = defaults.get("defer_build", False)
    defaults["defer_build"] = True
    try:
        yield
    finally:
        defaults["defer_build"] = before

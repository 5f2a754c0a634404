"""`jan-serve show --fit`: where the parts of a model go on this machine, by the free memory of this moment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import psutil

from jan_serve.cli.output import Output
from jan_serve.cli.server.memory_meter import accelerators
from jan_serve.placement.beside import bytes_beside
from jan_serve.placement.device_plan import plan_devices
from jan_serve.placement.report import advice, lines

if TYPE_CHECKING:
    from jan_serve.config import Settings
    from jan_serve.store.resolve import ModelResolver


def show_fit(
    name: str, settings: Settings, resolver: ModelResolver, output: Output, *, as_json: bool
) -> None:
    """Print the plan that a load would make now. Blocks for a second while it asks llama.cpp for its devices.

    Raises InsufficientMemory with the figures, InvalidModel, SettingsError.
    """
    from jan_serve.wiring.model_sources import ModelSources  # slow, and only needed here

    sources = ModelSources(resolver, settings)
    engine = sources.needs(sources.resolve(name).source).settings
    beside = bytes_beside(engine, os.path.getsize)
    plan = plan_devices(engine, accelerators(settings.rpc), psutil.virtual_memory().total, beside)
    if as_json:
        output.json(
            {
                "n_ctx": plan.n_ctx,
                "n_gpu_layers": plan.n_gpu_layers,
                "parts": [msgspec.to_builtins(part) | {"total": part.total} for part in plan.placed],
                "text": lines(plan.placed),
                "advice": advice(plan.placed, plan.warning),
            }
        )
        return
    for line in (*lines(plan.placed), *advice(plan.placed, plan.warning)):
        output.data(line)

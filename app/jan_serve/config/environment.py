"""Settings from JAN_SERVE_* variables, by pydantic-settings.

A module of its own, because pydantic-settings takes long to import and most servers have no such variable.
"""

from __future__ import annotations

from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from jan_serve.config.settings import ENV_PREFIX, Settings


def environment_values(kind: type[Settings]) -> dict[str, Any]:
    """The text of each variable that is set and not empty, by field."""

    class Environment(kind, BaseSettings):
        """The fields with their variables. Values stay text: Settings splits lists itself."""

        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, enable_decoding=False)

    return EnvSettingsSource(Environment)()

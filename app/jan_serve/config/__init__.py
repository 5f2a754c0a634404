"""Settings: defaults < configuration file < JAN_SERVE_* environment < flags. The only reader of the environment.

settings: the fields. settings_loader: merges the sources and explains wrong values. options: the fields as flags and
documentation. model_settings: `[models."NAME"]` tables, which model_book reloads. engine: the worker's part.
server_url: the address of a running server.
"""

from jan_serve.config.engine import engine_settings
from jan_serve.config.import_folders import ImportFolders, import_folders
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.model_settings import ModelSettings
from jan_serve.config.model_tables import ModelBook
from jan_serve.config.options import Option, setting_options
from jan_serve.config.server_url import ServerAddress, has_address, server_address
from jan_serve.config.settings import Settings
from jan_serve.config.settings_loader import LoadedSettings, load_settings

__all__ = [
    "ImportFolders",
    "LoadedSettings",
    "ModelBook",
    "ModelOptions",
    "ModelSettings",
    "Option",
    "ServerAddress",
    "Settings",
    "engine_settings",
    "has_address",
    "import_folders",
    "load_settings",
    "server_address",
    "setting_options",
]

"""Settings: defaults < configuration file < JAN_SERVE_* environment < flags. The only reader of the environment.
settings: the fields. settings_loader: merges the sources, explains wrong values, and has the address of a running
server. options: the fields as flags and documentation. model_settings: `[models."NAME"]` tables.
model_options: their part that workers get."""

from jan_serve.config.import_folders import ImportFolders as ImportFolders
from jan_serve.config.import_folders import import_folders as import_folders
from jan_serve.config.model_options import ModelOptions as ModelOptions
from jan_serve.config.model_options import engine_settings as engine_settings
from jan_serve.config.model_settings import ModelBook as ModelBook
from jan_serve.config.model_settings import ModelSettings as ModelSettings
from jan_serve.config.options import Option as Option
from jan_serve.config.options import setting_options as setting_options
from jan_serve.config.settings import Settings as Settings
from jan_serve.config.settings_loader import LoadedSettings as LoadedSettings
from jan_serve.config.settings_loader import ServerAddress as ServerAddress
from jan_serve.config.settings_loader import has_address as has_address
from jan_serve.config.settings_loader import load_settings as load_settings
from jan_serve.config.settings_loader import server_address as server_address

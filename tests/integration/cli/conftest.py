"""Commands in the test's process, as in tests/unit/cli, which start others."""

from __future__ import annotations

from tests.unit.cli.conftest import ask as ask
from tests.unit.cli.conftest import own_folders as own_folders
from tests.unit.cli.conftest import own_settings as own_settings
from tests.unit.cli.conftest import run as run
from tests.unit.cli.conftest import server as server

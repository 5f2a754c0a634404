"""Imports without what can wait."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from jan_serve.quick_imports import UNUSED_BY_SERVERS, classes_on_use, quick_imports


def test_models_are_built_on_their_first_use() -> None:
    with quick_imports():

        class Late(BaseModel):
            n: int

        assert not gc.isenabled()
    assert gc.isenabled()
    assert not Late.__pydantic_complete__
    with pytest.raises(ValidationError):
        Late.model_validate({"n": "x"})
    assert Late(n=1).n == 1

    class Afterwards(BaseModel):
        n: int

    assert Afterwards.__pydantic_complete__


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module that is not imported yet, with a class `Late`. The module `taker` takes the class from it."""
    (tmp_path / "late_module.py").write_text(
        "class Late:\n    kind = 'late'\n    def __init__(self, n=0): self.n = n\nclass Later(Late): pass\n"
    )
    (tmp_path / "taker.py").write_text(
        "from late_module import Late\ndef check(value: Late | None = None): return isinstance(value, Late)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield "late_module"
    for name in ("late_module", "taker"):
        sys.modules.pop(name, None)


def test_a_class_is_imported_when_it_is_used(late: str) -> None:
    with classes_on_use(late):
        import taker  # pyright: ignore[reportMissingImports]
    assert late not in sys.modules
    taken: Any = taker
    assert not taken.check(1)
    assert not issubclass(int, taken.Late)
    assert late not in sys.modules  # nothing can be an instance of it
    made = taken.Late(n=3)
    assert made.n == 3
    real: Any = sys.modules[late]
    assert type(made) is real.Late
    assert taken.check(made)
    assert taken.Late.kind == "late"
    assert issubclass(real.Later, taken.Late)
    assert not issubclass(int, taken.Late)


def test_a_class_may_be_used_while_packages_are_imported(late: str) -> None:
    with classes_on_use(late):
        import taker  # pyright: ignore[reportMissingImports]

        taken: Any = taker
        assert taken.Late(n=1).n == 1
        real: Any = sys.modules[late]
    assert sys.modules[late] is real
    assert taken.check(real.Late())


def test_a_class_that_inherits_from_one_imports_it(late: str) -> None:
    with classes_on_use(late):
        import taker  # pyright: ignore[reportMissingImports]

        taken: Any = taker

        class Heir(taken.Late):
            own = "mine"

    real: Any = sys.modules[late]
    heir: Any = Heir
    assert issubclass(heir, real.Late) and type(heir) is type(real.Late)
    assert (heir(n=2).n, heir.own) == (2, "mine")
    assert taken.check(heir(n=2))


def test_imported_modules_stay(late: str) -> None:
    real = importlib.import_module(late)
    with classes_on_use(late):
        assert importlib.import_module(late) is real


def test_what_servers_do_not_use_exists() -> None:
    """Else its place in the list does nothing."""
    for name in UNUSED_BY_SERVERS:
        assert importlib.util.find_spec(name), name


def test_a_process_without_pydantic_does_not_import_it() -> None:
    program = (
        "from jan_serve.quick_imports import quick_imports\n"
        "import sys\n"
        "with quick_imports(): import jan_serve.ipc.messages\n"
        "print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_pydantic_settings_is_imported_where_a_variable_is_set(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from jan_serve.config import load_settings\n"
        "print(load_settings().settings.port, 'pydantic_settings' in sys.modules)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    for variables, printed in (({}, "1337 False\n"), ({"JAN_SERVE_PORT": "99"}, "99 True\n")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment | variables,
        )
        assert done.stdout == printed

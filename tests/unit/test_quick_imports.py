"""Imports without what can wait."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from jan_serve.quick_imports import quick_imports


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


def test_a_process_without_pydantic_does_not_import_it() -> None:
    program = (
        "from jan_serve.quick_imports import quick_imports\n"
        "import sys\n"
        "with quick_imports(): import jan_serve.ipc.messages\n"
        "print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

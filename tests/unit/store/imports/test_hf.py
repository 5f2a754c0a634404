"""Finding models in the Hugging Face cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.store.imports.finders import find
from tests.unit.store.imports.support import COMMIT, DIGEST


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_hf_cache(cache: Path) -> None:
    (model,) = find("hf", [cache])
    assert (model.label, model.revision) == ("org/Repo-GGUF", COMMIT)
    assert [(file.name, file.sha256) for file in model.files] == [("org/Repo-GGUF/m-Q8_0.gguf", DIGEST)]
    (cache / "models--org--Repo-GGUF" / "refs" / "main").write_text("../../x")
    (model,) = find("hf", [cache])
    assert model.revision in (COMMIT, "f" * 40)

"""packaging/bundle.py: two wheels as one."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_packaging import PACKAGING, load

OWN = {
    "jan_serve/__init__.py": "",
    "jan_serve-1.0.dist-info/METADATA": "Metadata-Version: 2.4\nName: jan-serve\nVersion: 1.0\n"
    "Requires-Dist: llama-cpp-python==0.3\nRequires-Dist: numpy>=1.26\nLicense-File: LICENSE\n\nWords: näher\n",
    "jan_serve-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "jan_serve-1.0.dist-info/RECORD": "",
}
LLAMA = {
    "llama_cpp/__init__.py": "bindings",
    "llama_cpp/server/app.py": "",
    "llama_cpp/lib/libllama.so": "library",
    "llama_cpp/licences/llama.cpp.txt": "MIT",
    "llama_cpp_python-0.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3\n"
    'Requires-Dist: NumPy>=1.20\nRequires-Dist: diskcache>=5.6\nRequires-Dist: uvicorn; extra == "server"\n\n',
    "llama_cpp_python-0.3.dist-info/WHEEL": "",
    "llama_cpp_python-0.3.dist-info/licenses/LICENSE.md": "MIT too",
    "llama_cpp_python-0.3.dist-info/RECORD": "",
}


def _wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _bundled(folder: Path, llama: dict[str, str]) -> dict[str, bytes]:
    script: Any = load(PACKAGING / "bundle.py")
    own = _wheel(folder / "jan_serve-1.0-py3-none-any.whl", OWN)
    made = script.bundled(own, _wheel(folder / "llama.whl", llama), "manylinux_2_28_x86_64")
    assert made.name == "jan_serve-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(made) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_bindings_have_a_place_of_their_own(tmp_path: Path) -> None:
    files = _bundled(tmp_path, LLAMA)
    assert files["jan_serve/_bundled/llama_cpp/lib/libllama.so"] == b"library"
    assert not any(name.startswith("llama_cpp/") or "server" in name for name in files)


def test_what_the_bindings_need_is_needed_in_their_place(tmp_path: Path) -> None:
    metadata = Parser().parsestr(_bundled(tmp_path, LLAMA)["jan_serve-1.0.dist-info/METADATA"].decode())
    assert metadata.get_all("Requires-Dist") == ["numpy>=1.26", "diskcache>=5.6"]
    assert metadata.get_payload() == "Words: näher\n"


def test_all_licences_are_named_and_there(tmp_path: Path) -> None:
    files = _bundled(tmp_path, LLAMA)
    metadata = Parser().parsestr(files["jan_serve-1.0.dist-info/METADATA"].decode())
    names = metadata.get_all("License-File", [])
    assert names == ["LICENSE", "llama-cpp-python/llama.cpp.txt", "llama-cpp-python/LICENSE.md"]
    assert files["jan_serve-1.0.dist-info/licenses/llama-cpp-python/LICENSE.md"] == b"MIT too"


def test_without_licences_there_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no licences"):
        _bundled(tmp_path, {name: text for name, text in LLAMA.items() if "licences" not in name})


def test_the_wheel_is_for_one_system_and_its_record_is_right(tmp_path: Path) -> None:
    files = _bundled(tmp_path, LLAMA)
    wheel = Parser().parsestr(files["jan_serve-1.0.dist-info/WHEEL"].decode())
    assert (wheel["Root-Is-Purelib"], wheel.get_all("Tag")) == ("false", ["py3-none-manylinux_2_28_x86_64"])
    rows = list(csv.reader(io.StringIO(files["jan_serve-1.0.dist-info/RECORD"].decode())))
    assert {name for name, _, _ in rows} == set(files)
    for name, digest, size in rows[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(files[name])))

"""The files of packaging/ that can be checked without building anything."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
VALUES = {
    "VERSION": "1.2.3",
    "HOMEPAGE": "https://example.invalid/jan-serve",
    "URL": "https://example.invalid/download",
    "DATE": "2026-11-21",
    "SDIST": "jan_serve-1.2.3.tar.gz",
    "SDIST_SHA256": "a" * 64,
    "WINDOWS": "jan-serve-1.2.3-windows-x64.zip",
    "WINDOWS_SHA256": "B" * 64,
}


def load(path: Path) -> ModuleType:
    """A script as a module. Not by name: `packaging` is somebody else's library."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rendered(kind: str) -> dict[str, str]:
    """The manifests of a kind by file name."""
    script: Any = load(PACKAGING / "render_manifests.py")
    files = {path.name: script.rendered(path.read_text("utf-8"), VALUES) for path in script.templates(kind)}
    assert files
    return files


def tool(name: str) -> str:
    """Its path; without it the test is skipped."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_an_unknown_mark_is_an_error() -> None:
    script: Any = load(PACKAGING / "render_manifests.py")
    with pytest.raises(KeyError):
        script.rendered("@NOBODY@", VALUES)


def test_the_formula_is_ruby_and_names_its_download(tmp_path: Path) -> None:
    (text,) = rendered("homebrew").values()
    assert f'url "{VALUES["URL"]}/{VALUES["SDIST"]}"' in text
    assert f'sha256 "{VALUES["SDIST_SHA256"]}"' in text
    assert not re.search(r"@[A-Z0-9_]+@", text)
    path = tmp_path / "jan-serve.rb"
    path.write_text(text)
    subprocess.run([tool("ruby"), "-wc", str(path)], check=True, capture_output=True, timeout=30)


def test_winget_has_its_three_manifests_of_one_release() -> None:
    manifests = [yaml.safe_load(text) for text in rendered("winget").values()]
    kinds = {manifest["ManifestType"]: manifest for manifest in manifests}
    assert set(kinds) == {"version", "defaultLocale", "installer"}
    shared = ("PackageIdentifier", "PackageVersion", "ManifestVersion")
    assert len({tuple(manifest[name] for name in shared) for manifest in manifests}) == 1
    assert {"Publisher", "PackageName", "License", "ShortDescription"} <= set(kinds["defaultLocale"])
    installer = kinds["installer"]["Installers"][0]
    assert installer["InstallerUrl"] == f"{VALUES['URL']}/{VALUES['WINDOWS']}"
    assert installer["InstallerSha256"] == VALUES["WINDOWS_SHA256"]


def test_the_desktop_entry_and_its_description_name_each_other() -> None:
    entry = (PACKAGING / "linux" / "jan-serve.desktop").read_text("utf-8")
    component = ElementTree.parse(PACKAGING / "linux" / "jan-serve.metainfo.xml").getroot()
    assert component.findtext("launchable") == "jan-serve.desktop"
    assert component.findtext("project_license") == "Apache-2.0"
    assert f"Name={component.findtext('name')}\n" in entry
    assert f"Comment={component.findtext('summary')}\n" in entry


def test_the_desktop_entry_is_valid() -> None:
    command = [tool("desktop-file-validate"), str(PACKAGING / "linux" / "jan-serve.desktop")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_debian_package_runs_the_unit_of_the_service_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["render.py", str(tmp_path)])
    load(PACKAGING / "deb" / "render.py").main()
    unit = (tmp_path / "usr/lib/systemd/system/jan-serve.service").read_text("utf-8")
    assert "ExecStart=/usr/bin/jan-serve service run --config /etc/jan-serve/config.toml\n" in unit
    assert "DynamicUser=yes\n" in unit
    config = (tmp_path / "etc/jan-serve/config.toml").read_text("utf-8")
    assert 'data_dir = "/var/lib/jan-serve"\n' in config


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_have_no_root_and_say_how_they_are(name: str) -> None:
    lines = (PACKAGING / "docker" / name).read_text("utf-8").splitlines()
    last_stage = lines[max(at for at, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001:10001" in last_stage
    assert any(line.startswith("HEALTHCHECK ") for line in last_stage)
    assert not any(":latest" in line for line in lines)


def test_what_the_images_copy_reaches_the_builder() -> None:
    kept = [line[1:].rstrip("/") for line in _lines(ROOT / ".dockerignore") if line.startswith("!")]
    for name in ("Dockerfile", "Dockerfile.cuda"):
        for source in _copied(name):
            assert any(source.rstrip("/") == path or source.startswith(f"{path}/") for path in kept), source
            assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_the_images_copy_what_the_wheel_is_made_of(name: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = _copied(name)
    for needed in [project["readme"], *project["license-files"], *wheel["sbom-files"], *wheel["include"]]:
        if needed != "web/dist/":  # made by the first stage
            assert any(
                needed == source or needed.startswith(f"{source.rstrip('/')}/") for source in copied
            ), needed


def _copied(name: str) -> list[str]:
    """What an image takes from the checkout."""
    copies = [line.split()[1:-1] for line in _lines(PACKAGING / "docker" / name) if line.startswith("COPY ")]
    return [source for sources in copies if not sources[0].startswith("--from") for source in sources]


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()

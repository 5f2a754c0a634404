"""Writes the Homebrew formula and the winget manifests of a release into dist/manifests.

    .venv/bin/python packaging/render_manifests.py --homepage URL --url URL --date YYYY-MM-DD [--windows FILE]

--url: the folder with the files of the release. The formula builds the sdist of dist/. FILE is the zipped folder of
packaging/build-frozen, built on Windows (with `jan-serve/jan-serve.exe`). Without FILE, no winget manifest is written.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from jan_serve import __version__

HERE = Path(__file__).resolve().parent
_MARK = re.compile(r"@([A-Z0-9_]+)@")


def rendered(template: str, values: Mapping[str, str]) -> str:
    """The text with each @NAME@ replaced. Raises KeyError for an unknown name."""
    return _MARK.sub(lambda mark: values[mark[1]], template)


def digest(path: Path) -> str:
    """SHA-256 of a file. Raises OSError."""
    return sha256(path.read_bytes()).hexdigest()


def templates(kind: str) -> list[Path]:
    """The templates of a kind: homebrew or winget."""
    return sorted((HERE / kind).glob("*.in"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("--windows", type=Path)
    options = parser.parse_args()
    dist = HERE.parent / "dist"
    sdist = dist / f"jan_serve-{__version__}.tar.gz"
    values = {
        "VERSION": __version__,
        "HOMEPAGE": options.homepage,
        "URL": options.url.rstrip("/"),
        "DATE": options.date,
        "SDIST": sdist.name,
        "SDIST_SHA256": digest(sdist),
    }
    kinds = ["homebrew"]
    if options.windows is not None:
        values |= {"WINDOWS": options.windows.name, "WINDOWS_SHA256": digest(options.windows).upper()}
        kinds.append("winget")
    for kind in kinds:
        folder = dist / "manifests" / kind
        folder.mkdir(parents=True, exist_ok=True)
        for template in templates(kind):
            target = folder / template.name.removesuffix(".in")
            target.write_text(rendered(template.read_text(encoding="utf-8"), values), encoding="utf-8")
            print(target)


if __name__ == "__main__":
    main()

"""What a server installs, as a bill of materials: CycloneDX 1.6 (ECMA-424), from constraints.txt and nothing else.

Writes packaging/jan-serve.cdx.json, which the packages contain; `--check` only compares. It has no date, so that it
changes only with a package.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "packaging" / "jan-serve.cdx.json"
_PACKAGE: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$"
)
_HASH: Final = re.compile(r"^\s+--hash=sha256:(?P<digest>[0-9a-f]{64})")


def components(constraints: str) -> list[dict[str, Any]]:
    """A component for each pinned package, with the digests of the files that may be installed.

    Raises ValueError for a line that it does not know.
    """
    found: list[dict[str, Any]] = []
    for line in constraints.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if (package := _PACKAGE.match(line)) is not None:
            name, version = package["name"], package["version"]
            purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
            component: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version}
            component |= {"purl": purl, "hashes": []}
            if package["marker"]:
                component["properties"] = [{"name": "python:environment-marker", "value": package["marker"]}]
            found.append(component)
        elif (digest := _HASH.match(line)) is not None and found:
            found[-1]["hashes"].append({"alg": "SHA-256", "content": digest["digest"]})
        else:
            raise ValueError(f"constraints.txt: {line!r}")
    return found


def document() -> str:
    """The whole bill, as text."""
    init = (ROOT / "app" / "jan_serve" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', init, re.MULTILINE)
    assert version is not None
    parts = components((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    own = {
        "type": "application",
        "bom-ref": "jan-serve",
        "name": "jan-serve",
        "version": version[1],
        "purl": f"pkg:pypi/jan-serve@{version[1]}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": parts,
        "dependencies": [{"ref": "jan-serve", "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    return json.dumps(bill, indent=1) + "\n"


def main() -> int:
    """0 if the file is written, or with --check if it is up to date."""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(document(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != document():
        print(f"{TARGET.relative_to(ROOT)} does not match constraints.txt: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The bill of materials that the packages contain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import sbom

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_up_to_date_and_whole() -> None:
    text = (ROOT / "packaging" / "jan-serve.cdx.json").read_text(encoding="utf-8")
    assert text == sbom.document(), "run `make docs`"
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = [line for line in pinned.splitlines() if not line.startswith((" ", "#"))]
    assert [f"{part['name']}=={part['version']}" for part in bill["components"]] == [
        line.split()[0] for line in pins
    ]
    assert all(part["hashes"] for part in bill["components"])
    refs = [part["bom-ref"] for part in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert bill["dependencies"][0]["dependsOn"] == refs


def test_a_marker_is_kept_and_a_line_that_is_not_understood_is_an_error() -> None:
    digest = "0" * 64
    (part,) = sbom.components(f"Some_Thing==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{digest}\n")
    assert part["purl"] == "pkg:pypi/some-thing@1.0"
    assert part["properties"][0]["value"] == "sys_platform == 'win32'"
    assert part["hashes"] == [{"alg": "SHA-256", "content": digest}]
    with pytest.raises(ValueError, match="evil"):
        sbom.components("evil @ https://example.invalid/evil.whl\n")

"""Puts a compiled llama-cpp-python into the wheel of jan-serve: one wheel that needs no compiler.

    .venv/bin/python packaging/bundle.py dist/jan_serve-*.whl llama_cpp_python-*.whl PLATFORM

PLATFORM is the tag of the new wheel, for example manylinux_2_28_x86_64; it replaces the first wheel. The bindings go to
jan_serve/_bundled, where only jan-serve finds them: another llama-cpp-python of the same environment stays as it is.
Their dependencies become those of the wheel, and all their licences are in it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

_BUNDLED = "jan_serve/_bundled/"
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def bundled(own: Path, llama: Path, platform: str) -> Path:
    """The new wheel, beside the first one."""
    with zipfile.ZipFile(own) as own_archive, zipfile.ZipFile(llama) as llama_archive:
        files = {name: own_archive.read(name) for name in own_archive.namelist() if not name.endswith("/")}
        info = _info_folder(files)
        added = {
            name: llama_archive.read(name) for name in llama_archive.namelist() if not name.endswith("/")
        }
    llama_info = _info_folder(added)
    metadata, llama_metadata = _parsed(files[f"{info}/METADATA"]), _parsed(added[f"{llama_info}/METADATA"])
    licences: list[str] = []
    for name, content in added.items():
        if name.startswith("llama_cpp/licences/") or name.startswith(f"{llama_info}/licenses/"):
            licences.append(f"llama-cpp-python/{Path(name).name}")
            files[f"{info}/licenses/{licences[-1]}"] = content
        elif name.startswith("llama_cpp/") and not name.startswith("llama_cpp/server/"):
            files[_BUNDLED + name] = content
    if len(licences) < 2:
        raise SystemExit(f"{llama.name} has no licences")
    files[f"{info}/METADATA"] = _with_requirements(metadata, llama_metadata, licences)
    wheel = _parsed(files[f"{info}/WHEEL"])
    del wheel["Tag"]
    wheel.replace_header("Root-Is-Purelib", "false")
    wheel["Tag"] = f"py3-none-{platform}"
    files[f"{info}/WHEEL"] = wheel.as_bytes()
    target = own.with_name(own.name.replace("-py3-none-any.whl", f"-py3-none-{platform}.whl"))
    _write(target, files, f"{info}/RECORD")
    return target


def _info_folder(files: dict[str, bytes]) -> str:
    (name,) = [name for name in files if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
    return name.removesuffix("/METADATA")


def _parsed(content: bytes) -> Message:
    return Parser().parsestr(content.decode("utf-8"))


def _with_requirements(own: Message, llama: Message, licences: list[str]) -> bytes:
    """METADATA that needs what the bindings need in place of them."""
    needed = [
        value for value in own.get_all("Requires-Dist", []) if _requirement_name(value) != "llama-cpp-python"
    ]
    present = {_requirement_name(value) for value in needed}
    for value in llama.get_all("Requires-Dist", []):
        if "extra ==" not in value and _requirement_name(value) not in present:
            needed.append(value)
    del own["Requires-Dist"]
    for value in needed:
        own["Requires-Dist"] = value
    for name in licences:
        own["License-File"] = name
    return own.as_string().encode("utf-8")


def _requirement_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _write(target: Path, files: dict[str, bytes], record_name: str) -> None:
    """The archive with a new RECORD. Times are those of the oldest zip file, so that equal files are an equal wheel."""
    rows: list[tuple[str, str, str]] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            if name != record_name:
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                rows.append((name, f"sha256={digest}", str(len(content))))
                archive.writestr(_entry(name), content)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record_name, "", "")])
        archive.writestr(_entry(record_name), text.getvalue())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def main(arguments: list[str]) -> None:
    if len(arguments) != 3:
        raise SystemExit(__doc__)
    own, llama = map(Path, arguments[:2])
    print(bundled(own, llama, arguments[2]))
    own.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])

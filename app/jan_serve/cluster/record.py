"""What `jan-serve cluster up` started from this machine, for `status`, `down` and the next `up`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jan_serve.cluster.cluster_file import ClusterFile
from jan_serve.cluster.head import Head
from jan_serve.errors import StoreError
from jan_serve.store.files.atomic_file import private_folder, write_atomically


class ClusterRecord(msgspec.Struct, frozen=True):
    """Holds keys. address: of Ray. head: None if `up` did not start Ray."""

    address: str
    file: ClusterFile
    head: Head | None = None


def read_record(path: Path) -> ClusterRecord | None:
    """None if nothing was started here. Raises StoreError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): delete it; `ray stop` ends the Ray processes of a machine"
        ) from None


def write_record(path: Path, record: ClusterRecord) -> None:
    """Readable by this user only. Raises StoreError."""
    try:
        private_folder(path.parent)
        write_atomically(path, msgspec.json.encode(record), mode=0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None


def forget_record(path: Path) -> None:
    path.unlink(missing_ok=True)


def record_file(data_dir: Path) -> Path:
    return data_dir / "cluster.json"

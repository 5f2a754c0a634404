"""Folders of live processes stay, those of dead ones go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jan_serve.store.gguf.weight_update import ProcessFolder

LIVES = """
import sys
from pathlib import Path
from jan_serve.store.gguf.weight_update import ProcessFolder
folder = ProcessFolder(Path(sys.argv[1]))
print(folder.path(), flush=True)
sys.stdin.read()
"""


def folders(root: Path) -> set[Path]:
    return {path for path in root.iterdir() if path.is_dir()}


def test_a_dead_process_leaves_nothing_and_a_live_one_keeps_its_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIVES, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        ours = ProcessFolder(tmp_path)
        assert {theirs, ours.path()} == folders(tmp_path)
        ours.close()
        process.kill()
        process.wait(60)
        assert theirs.is_dir()
        assert folders(tmp_path) == {theirs}
        again = ProcessFolder(tmp_path)
        assert {again.path()} == folders(tmp_path)
        again.close()

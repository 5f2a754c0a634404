"""Run as a script: a Ray cluster of several machines on this one, in a process of its own.

Arguments: how many, and a folder with a short name for Ray's files. Prints the address. Each line of standard input is
a command, answered by a line: `add` another machine, `lose` the one that was added last, without a farewell. All of it
ends with the input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, cast

MACHINE: Final[dict[str, Any]] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def _main(number: int, folder: str) -> None:
    # Ray writes the address of the cluster there too, and does not make the folder.
    os.environ["RAY_TMPDIR"] = folder
    Path(folder, "ray").mkdir()
    from ray import cluster_utils  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    cluster = cast(Any, cluster_utils).Cluster(
        initialize_head=True, head_node_args={**MACHINE, "temp_dir": folder}
    )
    try:
        added = [cluster.add_node(**MACHINE) for _ in range(number - 1)]
        _say(cluster.address)
        for line in sys.stdin:
            if line.strip() == "add":
                added.append(cluster.add_node(**MACHINE))
            else:
                cluster.remove_node(added.pop(), allow_graceful=False)
            _say("done")
    finally:
        cluster.shutdown()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])

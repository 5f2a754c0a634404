"""`python -m scripts.installer [dev|cluster]` makes an environment; `llama [--portable]` prints the path of a wheel."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from kernels import llama
from scripts.installer.cache import cache_folder, locked
from scripts.installer.environment import Environment
from scripts.installer.errors import InstallError, of_os_error


def main(arguments: list[str]) -> int:
    """The exit status; failures are told in one line."""
    # A terminated installation gives back its temporary files, as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        match arguments:
            case [] | ["dev"] | ["cluster"]:
                with locked(llama.ROOT / "scripts", "another installation is running here: waiting for it"):
                    Environment(llama.ROOT, cluster="cluster" in arguments).make(developing=bool(arguments))
            case ["llama"] | ["llama", "--portable"]:
                builds = llama.chosen_builds(
                    os.environ.get("CMAKE_ARGS", ""),
                    os.environ.get("LLAMA_COMPILER", ""),
                    portable=len(arguments) > 1,
                )
                print(llama.wheel_of(builds, Path(sys.executable), cache_folder(llama.ROOT)))
            case _:
                raise InstallError(
                    f"scripts/install takes nothing, `dev` or `cluster`, not {' '.join(arguments)}"
                )
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {of_os_error('the installation', error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped: run the same command again to complete it", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

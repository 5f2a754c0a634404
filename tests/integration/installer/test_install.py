"""scripts/install as a whole, with tools that pretend."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.installer.fake_install import FakeCheckout
from tests.support.deadline import deadline


@pytest.fixture
def checkout(tmp_path: Path) -> FakeCheckout:
    return FakeCheckout(tmp_path)


def test_serving_installs_only_what_serving_needs_and_does_it_once(checkout: FakeCheckout) -> None:
    status, _ = checkout.install()
    assert status == 0
    calls = checkout.calls()
    assert sum(" wheel " in call for call in calls) == 1
    assert sum("--require-hashes" in call and call.startswith("uv ") for call in calls) == 1
    assert [call for call in calls if "--editable" in call] == [calls[-1]]
    assert checkout.install() == (0, [])
    assert checkout.calls() == []


def test_modules_are_compiled_for_the_first_start(checkout: FakeCheckout) -> None:
    quiet = {"FAKE_FAILS": "uv pip", "FAKE_SAYS": "uv was not asked to", "FAKE_UNLESS": "UV_COMPILE_BYTECODE"}
    status, messages = checkout.install(**quiet)
    assert (status, [line for line in messages if "uv" in line]) == (0, [])
    app = f"compileall -q -j 0 {checkout.root}/app"
    assert [call for call in checkout.calls() if "compileall" in call] == [f"python -m {app}"]


def test_a_checkout_that_cannot_be_compiled_is_installed(checkout: FakeCheckout) -> None:
    status, messages = checkout.install(FAKE_FAILS="compileall", FAKE_SAYS="Read-only file system")
    assert (status, [line for line in messages if "error" in line]) == (0, [])
    assert "--editable" in checkout.calls()[-1]


def test_development_adds_the_rest(checkout: FakeCheckout) -> None:
    checkout.install()
    checkout.calls()
    assert checkout.install("dev")[0] == 0
    calls = checkout.calls()
    assert len(calls) == 2  # pip's settings for uv, and uv
    assert "--require-hashes" in calls[1]


def test_a_kept_wheel_is_used_by_the_next_environment(checkout: FakeCheckout) -> None:
    checkout.install()
    checkout.calls()
    for stamp in (checkout.root / ".venv").glob(".*"):
        stamp.unlink()
    assert checkout.install()[0] == 0
    assert not any(" wheel " in call or "--target" in call for call in checkout.calls())


CAUSES = [
    ("wheel", "OSError: [Errno 28] No space left on device", "the disk is full"),
    ("wheel", "Temporary failure in name resolution", "check the network"),
    ("wheel", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "pinned hash"),
    ("wheel", "ERROR: No matching distribution found for cmake", "lacks a pinned version"),
    ("wheel", "No CMAKE_CXX_COMPILER could be found.", "install one"),
    ("wheel", "clang: error: unable to execute command: Killed", "memory was short"),
    ("install", "error: Read-only file system (os error 30)", "cannot be written"),
    ("install", "error: something unheard of", "something unheard of"),
]


@pytest.mark.parametrize(("step", "output", "advice"), CAUSES)
def test_a_failure_is_one_line_and_the_next_try_works(
    checkout: FakeCheckout, step: str, output: str, advice: str
) -> None:
    status, messages = checkout.install(FAKE_FAILS=step, FAKE_SAYS=output)
    assert status == 1
    assert [line for line in messages if not line.startswith("==> ")] == [messages[-1]]
    assert messages[-1].startswith("error: ")
    assert advice in messages[-1]
    assert checkout.install()[0] == 0


@pytest.mark.parametrize("output", ["No space left on device", "Temporary failure in name resolution"])
def test_no_other_compiler_is_tried_without_a_disk_or_a_network(checkout: FakeCheckout, output: str) -> None:
    assert checkout.install(FAKE_FAILS="/zig.txt", FAKE_SAYS=output)[0] == 1
    assert not any(" wheel " in call for call in checkout.calls())


def test_pip_does_not_try_what_filled_the_disk(checkout: FakeCheckout) -> None:
    assert checkout.install(FAKE_FAILS="uv pip", FAKE_SAYS="No space left on device (os error 28)")[0] == 1
    assert not any("pip install --no-input" in call for call in checkout.calls())


def test_without_a_network_kept_downloads_are_installed(checkout: FakeCheckout) -> None:
    status, messages = checkout.install(FAKE_FAILS="uv pip", FAKE_SAYS="dns error", FAKE_UNLESS="UV_OFFLINE")
    assert status == 0
    assert not any("trying pip" in line for line in messages)


def test_pip_installs_where_uv_cannot(checkout: FakeCheckout) -> None:
    status, messages = checkout.install(FAKE_FAILS="uv pip", FAKE_SAYS="error: no such index")
    assert status == 0
    assert any("no such index" in line and line.endswith("trying pip") for line in messages)
    assert any(
        call.startswith("python -m pip") and "--require-hashes --no-deps" in call for call in checkout.calls()
    )


def test_without_uv_pip_installs(checkout: FakeCheckout) -> None:
    status, messages = checkout.install(FAKE_FAILS="/uv.txt", FAKE_SAYS="Network is unreachable")
    assert status == 0
    assert sum("without uv" in line for line in messages) == 1
    assert not any(call.startswith("uv") for call in checkout.calls())


def test_a_home_that_cannot_be_written_keeps_files_in_the_checkout(checkout: FakeCheckout) -> None:
    status, messages = checkout.install(XDG_CACHE_HOME="/dev/null")
    assert status == 0
    assert sum("cannot be written" in line for line in messages) == 1
    assert list((checkout.root / ".cache" / "jan-serve-build").glob("*/*.whl"))


def test_a_second_installation_waits_for_the_first(checkout: FakeCheckout) -> None:
    with checkout.start(FAKE_WAITS=" wheel ") as first:
        with deadline(first):
            checkout.begun.read_bytes()
        with checkout.start() as second:
            assert second.stderr is not None
            with deadline(second):
                assert "another installation is running here" in second.stderr.readline()
            checkout.go.write_text("\n", encoding="utf-8")
            assert first.wait(60) == 0
            assert second.communicate(timeout=60) == (None, "")
            assert second.returncode == 0
    assert sum(" wheel " in call for call in checkout.calls()) == 1


def test_after_a_cut_compilation_the_next_try_works(checkout: FakeCheckout) -> None:
    with checkout.start(FAKE_WAITS=" wheel ") as first:
        with deadline(first):
            checkout.begun.read_bytes()
        first.kill()
    checkout.go.write_text("\n", encoding="utf-8")  # the tool outlives it
    checkout.calls()
    assert list(checkout.temporary.iterdir())
    assert checkout.install()[0] == 0
    assert sum(" wheel " in call for call in checkout.calls()) == 1
    assert not list(checkout.temporary.iterdir())


OLD = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12 && exit 0\nexit 1\n'
WITHOUT_VENV = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.12.1\ncase "$2" in *venv*) exit 1 ;; esac\n'
SHIM = "#!/bin/sh\necho no such version >&2\nexit 127\n"


@pytest.mark.parametrize(
    ("program", "variables", "said"),
    [
        (OLD, {}, "but python3 is Python 3.10.12: install it"),
        (WITHOUT_VENV, {}, "but python3 has no venv module: install it"),
        (SHIM, {}, "but it is not there: install it"),
        (WITHOUT_VENV, {"PYTHON": "a python"}, "but a python is not there: install it"),
    ],
)
def test_a_python_that_does_not_do_is_told_what_to_install(
    checkout: FakeCheckout, tmp_path: Path, program: str, variables: dict[str, str], said: str
) -> None:
    shutil.rmtree(checkout.root / ".venv")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    python = tools / "python3"
    python.write_text(program, encoding="utf-8")
    python.chmod(0o755)
    done = subprocess.run(
        [checkout.root / "scripts" / "install"],
        env={"PATH": str(tools), **variables},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "3.11 or newer" in line
    assert said in line
    assert "apt install python3-venv" in line


def test_ray_has_an_environment_of_its_own(checkout: FakeCheckout) -> None:
    shutil.copytree(checkout.root / ".venv", checkout.root / ".venv-cluster")
    assert checkout.install("cluster")[0] == 0
    calls = checkout.calls()
    assert sum("--require-hashes" in call and call.startswith("uv ") for call in calls) == 3
    assert all(".venv-cluster" in call for call in calls if call.startswith("uv "))
    assert checkout.install("cluster") == (0, [])
    assert checkout.calls() == []

"""The field in an error's message; what a process lacks for a moment, told from the exception or one that led to it."""

from __future__ import annotations

import errno
from typing import Final

import pytest

from jan_serve.errors import InsufficientMemory, InvalidImage, Unavailable, ran_out_of_memory, shortage

SHORTAGES: Final = (
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("llguidance/_lib.abi3.so: failed to map segment from shared object"),
    ImportError("libm.so: cannot allocate memory in static TLS block"),
    RuntimeError("can't start new thread"),
)
OTHERS: Final = (
    KeyError("a"),
    OSError(errno.ENOENT, "No such file or directory"),
    ImportError("cannot import name 'x' from 'y'"),
    ModuleNotFoundError("No module named 'x'"),
    RuntimeError("a defect"),
)


def _chained(cause: Exception, *, explicit: bool) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            if explicit:
                raise ValueError("later") from error
            raise ValueError("later")  # noqa: B904  # the implicit context is what is tested
    except ValueError as error:
        return error


@pytest.mark.parametrize("explicit", [True, False])
def test_the_root_cause_counts(explicit: bool) -> None:
    for error in SHORTAGES:
        assert ran_out_of_memory(error) and type(shortage(error)) is InsufficientMemory
        assert ran_out_of_memory(_chained(error, explicit=explicit))
    for error in OTHERS:
        assert not ran_out_of_memory(error) and shortage(error) is None
        assert not ran_out_of_memory(_chained(error, explicit=explicit))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_is_named(number: int) -> None:
    for error in (
        OSError(number, "Too many open files"),
        _chained(OSError(number, "Too many"), explicit=False),
    ):
        lacking = shortage(error)
        assert type(lacking) is Unavailable and "more files now (Too many" in lacking.message


def test_an_error_about_a_field_names_it_once_wherever_it_is_shown() -> None:
    error = InvalidImage("is damaged").about("messages[0]").about("messages[0]")
    assert (error.param, error.message, str(error)) == (
        "messages[0]",
        "messages[0]: is damaged",
        error.message,
    )

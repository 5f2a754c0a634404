"""Log lines: one a record, whatever is in it."""

from __future__ import annotations

import io
import json
import logging

from jan_serve.logs.log_lines import configure_logging, printable
from tests.support.kept_logging import keep_logging as keep_logging


def test_lines_for_people() -> None:
    stream = io.StringIO()
    configure_logging("info", as_json=False, stream=stream)
    logger = logging.getLogger("jan_serve.test")
    fields = {"tokens": 3, "seconds": 0.12345, "who": "a b", "no": None}
    logger.info("model %s\r\nforged line \x1b[31m", "x\x00", extra=fields)
    logger.debug("not shown")
    (line,) = stream.getvalue().splitlines()
    assert "INFO" in line
    assert line.endswith(
        'jan_serve.test: model x\\x00\\r\\nforged line \\x1b[31m tokens=3 seconds=0.123 who="a b"'
    )


def test_json_lines() -> None:
    stream = io.StringIO()
    configure_logging("debug", as_json=True, stream=stream)
    logging.getLogger("jan_serve.test").debug("hé\n", extra={"tokens": 3})
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logging.getLogger("jan_serve.test").exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["message"], first["tokens"], first["level"]) == ("hé\n", 3, "debug")
    assert first["time"].endswith("+00:00")
    assert "ValueError: bad" in second["traceback"]


def test_tracebacks_are_indented() -> None:
    stream = io.StringIO()
    configure_logging("error", as_json=False, stream=stream)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        logging.getLogger("jan_serve.test").exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_uvicorn_logs_only_warnings() -> None:
    stream = io.StringIO()
    logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(stream))
    configure_logging("info", as_json=False, stream=stream)
    logging.getLogger("uvicorn.access").info("GET / 200")
    logging.getLogger("uvicorn.error").warning("bad request")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("uvicorn.error: bad request")


def test_direction_marks_are_visible() -> None:
    assert printable("a\u202eb\u2028c\x9bd é模😀") == "a\\u202eb\\u2028c\\x9bd é模😀"

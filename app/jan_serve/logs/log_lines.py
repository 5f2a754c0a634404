"""Formats of log lines: text, or one JSON object per line.
Text from models, files and requests may contain terminal escapes and line breaks: control characters are escaped, so
that one record is one line. Nothing logs prompt text."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def printable(text: str) -> str:
    """`text` on one line, with control characters and text direction marks escaped."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def configure_logging(
    level: str, *, as_json: bool, stream: TextIO | None = None, file: logging.Handler | None = None
) -> None:
    """Log to `stream` (default: standard error) and to `file`. Replaces existing handlers."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    if file is not None:
        file.setFormatter(JsonFormatter() if as_json else LineFormatter(with_date=True))
        root.addHandler(file)
    root.setLevel(logging.WARNING)
    logging.getLogger("jan_serve").setLevel(_LEVELS[level])
    # uvicorn may have installed handlers; its access lines repeat our request lines.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.INFO if level == "debug" else logging.WARNING)


class LineFormatter(logging.Formatter):
    """`12:34:56.789 INFO jan_serve.api: message key=value`; tracebacks follow on separate lines.
    with_date: prepend the date."""

    def __init__(self, *, with_date: bool = False) -> None:
        super().__init__()
        self._time_format = "%Y-%m-%d %H:%M:%S.%f" if with_date else "%H:%M:%S.%f"

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime(self._time_format)[:-3]
        fields = fields_text(_extra_fields(record))
        line = f"{time} {record.levelname:<7} {record.name}: {printable(record.getMessage())}{fields}"
        lines = self.formatException(record.exc_info).splitlines() if record.exc_info else ()
        return line + "".join(f"\n    {printable(each)}" for each in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339, UTC), level, logger, message, and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(record_content(record), ensure_ascii=True, default=str)


def record_content(record: logging.LogRecord) -> dict[str, Any]:
    """The JSON object that JsonFormatter writes for a record."""
    content: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
        **_extra_fields(record),
    }
    if record.exc_info:
        content["traceback"] = logging.Formatter().formatException(record.exc_info)
    return content


def fields_text(fields: Mapping[str, Any]) -> str:
    """` name=value` for each field."""
    return "".join(f" {name}={_plain(value)}" for name, value in fields.items())


def _extra_fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """The `extra` fields of a record that are not None."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD_FIELDS and not name.startswith("_") and value is not None
    }


def _plain(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else printable(str(value))
    return json.dumps(text) if " " in text or '"' in text or not text else text

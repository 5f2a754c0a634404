"""What a server would send to a collector of OpenTelemetry, kept in memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from jan_serve.http import tracing
from jan_serve.http.tracing import Tracing


def context(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


class Spans:
    """The spans of every server that was made inside the block; `read` closes those servers' tracing."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._made: list[Tracing] = []

    def make(self, endpoint: str, service: str) -> Tracing:
        self._made.append(Tracing(self._exporter, service))
        return self._made[-1]

    def read(self) -> list[ReadableSpan]:
        for each in self._made:
            each.close()
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        (span,) = [span for span in self.read() if span.name == name]
        return span


@contextmanager
def kept_spans() -> Generator[Spans]:
    """In place of a collector, for applications that are made in the block with `otel_endpoint`."""
    spans = Spans()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "tracing_to", spans.make)
        yield spans

"""Spans of OpenTelemetry: one per request, below it that of the model, and below that its phases. Never text.

Imported only where the setting `otel_endpoint` is: nothing else of the package imports `opentelemetry`. Names of
attributes are those of its semantic conventions for HTTP and for generative models.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from jan_serve import __version__
from jan_serve.errors import SettingsError
from jan_serve.http.request_record import RequestRecord

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_HEADERS: Final = (b"traceparent", b"tracestate")
_MAX_NAME_CHARS: Final = 200
_EXPORT_S: Final = 5.0
"""How long a collector may take for a batch of spans, which a thread sends."""
_CLOSE_S: Final = 2.0


class Tracing:
    """A RequestWatcher. A collector that is slow or gone loses spans, and delays no request."""

    def __init__(self, exporter: Any, service: str) -> None:
        """exporter: of the SDK. service: its `service.name`. Raises SettingsError without the SDK."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise _missing(error) from None
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service, "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Tracer = self._provider.get_tracer("jan_serve", __version__)
        self._open: dict[int, tuple[Span, int, str]] = {}

    def begin(self, scope: Scope, record: RequestRecord) -> None:
        found = [header for header in scope["headers"] if header[0] in _HEADERS]
        headers = {name.decode(): value.decode("latin-1") for name, value in found}
        began = time.time_ns()
        span = self._tracer.start_span(
            scope["method"],
            context=_PROPAGATOR.extract(headers, Context()),
            kind=SpanKind.SERVER,
            start_time=began,
            attributes={
                "http.request.method": scope["method"],
                "url.scheme": scope.get("scheme", "http"),
                "jan_serve.request_id": record.request_id,
            },
        )
        _PROPAGATOR.inject(record.trace.context, set_span_in_context(span, Context()))
        self._open[id(record)] = span, began, scope["method"]

    def end(self, route: str, status: int, record: RequestRecord) -> None:
        span, began, method = self._open.pop(id(record))
        if span.is_recording():
            total_s = record.elapsed_s()
            if record.trace.owner is not None:
                self._model_spans(span, record, began, total_s)
            span.update_name(f"{method} {route}")
            span.set_attributes({"http.route": route, "http.response.status_code": status})
            _end(span, record, began, total_s, is_error=status >= 500)

    def _model_spans(self, parent: Span, record: RequestRecord, began: int, total_s: float) -> None:
        operation, asked = record.trace.operation, record.trace.model or record.model or ""
        span = self._tracer.start_span(
            f"{operation} {asked[:_MAX_NAME_CHARS]}".rstrip(),
            context=set_span_in_context(parent, Context()),
            kind=SpanKind.INTERNAL,
            start_time=began,
            attributes=dict(_model_attributes(record)),
        )
        below = set_span_in_context(span, Context())
        for phase in record.phases(total_s):
            start = began + _ns(phase.began - record.started)
            child = self._tracer.start_span(phase.name, context=below, start_time=start)
            child.end(start + _ns(phase.seconds))
        _end(span, record, began, total_s, is_error=record.error is not None)

    def close(self) -> None:
        """Send what waits. Blocks for two seconds at most: the SDK would wait for a collector that does not answer."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(_CLOSE_S)


def tracing_to(endpoint: str, service: str) -> Tracing:
    """Spans for a collector. endpoint: without the path `/v1/traces`. Raises SettingsError without the packages."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from None
    return Tracing(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_S), service)


def _missing(error: ImportError) -> SettingsError:
    return SettingsError(
        f"otel_endpoint needs a package that is not installed ({error.name}): pip install 'jan-serve[otel]'"
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _end(span: Span, record: RequestRecord, began: int, total_s: float, *, is_error: bool) -> None:
    if record.error is not None:
        span.set_attribute("error.type", record.error)
    if record.cancelled:
        span.set_attribute("jan_serve.cancelled", True)
    if is_error:
        span.set_status(StatusCode.ERROR)
    span.end(began + _ns(total_s))


def _model_attributes(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    yield "gen_ai.operation.name", record.trace.operation
    yield "gen_ai.provider.name", "jan_serve"
    if record.trace.model is not None:
        yield "gen_ai.request.model", record.trace.model[:_MAX_NAME_CHARS]
    if record.stream:
        yield "gen_ai.request.stream", True
    if record.model is not None:
        yield "gen_ai.response.model", record.model
    if record.prompt_tokens:
        yield "gen_ai.usage.input_tokens", record.prompt_tokens
        yield "gen_ai.usage.cache_read.input_tokens", record.cached_tokens
        yield "gen_ai.usage.output_tokens", record.completion_tokens
    if record.finish_reasons:
        yield "gen_ai.response.finish_reasons", record.finish_reasons
    if record.stream and record.first_token_s is not None:
        yield "gen_ai.response.time_to_first_chunk", record.first_token_s

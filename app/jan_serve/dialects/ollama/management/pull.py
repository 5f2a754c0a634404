"""The lines of a pull. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jan_serve.core.pull_step import PullStep
from jan_serve.dialects.ollama.management.wire import OllamaProgress


class PullLines:
    """OllamaProgress by file, in order of transfer: the bytes received so far belong to the first files."""

    def __init__(self) -> None:
        self._last: OllamaProgress | None = None

    def chunks(self, step: PullStep) -> Iterator[OllamaProgress]:
        """Each line once: a pull reports more often than its progress changes."""
        for line in self._lines(step):
            if line != self._last:
                self._last = line
                yield line

    def _lines(self, step: PullStep) -> Iterator[OllamaProgress]:
        if self._last is None:
            yield {"status": "pulling manifest"}
        if step.note is not None:
            yield {"status": step.note}
        left = step.received
        for file in step.files:
            here = min(left, file.size_bytes)
            left -= here
            if step.done or here < file.size_bytes:
                yield {
                    "status": f"pulling {file.sha256[:12]}",
                    "digest": f"sha256:{file.sha256}",
                    "total": file.size_bytes,
                    "completed": here,
                }
                if not step.done:
                    return
        if step.done:
            yield {"status": "verifying sha256 digest"}
            yield {"status": "writing manifest"}
            yield {"status": "success"}

"""The worker's end of its pipe, which is its stdin and stdout; there is no socket. The front's is `async_channel`."""

from __future__ import annotations

from typing import Final

from jan_serve.ipc.child_pipe import BlockingPipe, Frames, take_over_pipe
from jan_serve.ipc.messages import WorkerEvent, WorkerRequest

REQUESTS: Final[Frames[WorkerRequest]] = Frames(
    WorkerRequest, "known request", "the worker pipe", limit=64 << 20
)
"""Token arrays of long contexts fit; images come in parts (`media_frames`)."""
EVENTS: Final[Frames[WorkerEvent]] = Frames(WorkerEvent, "known event", "the worker pipe", limit=256 << 20)
"""A batch of embeddings, or log-probabilities of a whole prompt, fits."""


class BlockingChannel(BlockingPipe):
    """One thread receives; any thread may send."""

    def receive(self) -> WorkerRequest | None:
        """The next request, as `read`. Raises ProtocolError for an unknown one, too."""
        body = self.read(REQUESTS.limit)
        return None if body is None else REQUESTS.decode(body)

    def send(self, event: WorkerEvent) -> None:
        """Blocks and raises as `write`; ProtocolError, and writes nothing, above the size limit."""
        self.write(EVENTS.encode(event))


def take_over_stdio() -> BlockingChannel:
    return BlockingChannel(*take_over_pipe())

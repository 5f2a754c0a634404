"""Decodes images and sounds in the test's process, for tests of other parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from jan_serve.helpers.kinds import DECODING, DecodeMedia
from jan_serve.helpers.work.media import decoded


@dataclass
class InlineDecoder:
    """Its `decode` is a MediaDecoder. Only for files written by tests. asked: what it decoded."""

    asked: list[DecodeMedia] = field(default_factory=list[DecodeMedia])

    async def decode(self, request: DecodeMedia) -> bytes:
        """Decodes at once, what comes out of the decoder's pipe."""
        request = DECODING.requests.decode(DECODING.requests.body(request))
        self.asked.append(request)
        return decoded(request)

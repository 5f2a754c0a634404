"""Decodes images and sounds. Started as `jan-serve media`; not a user command."""

from __future__ import annotations

from jan_serve.helpers.child import serve
from jan_serve.helpers.kinds import DECODING, DecodeImage, DecodeMedia


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(DECODING, decoded)


def decoded(request: DecodeMedia) -> bytes:
    """The pixels or samples. Each library is imported by the first request that needs it. Raises InvalidRequest."""
    if isinstance(request, DecodeImage):
        from jan_serve.helpers.work import images

        return images.decoded(request.data, request.header, request.size)
    from jan_serve.helpers.work import audio

    return audio.decoded(request.data, request.header, request.rate)

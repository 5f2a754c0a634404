"""Decodes images, sounds and PDFs."""

from __future__ import annotations

from jan_serve.helpers.kinds import DecodeImage, DecodeMedia, DecodePdf


def decoded(request: DecodeMedia) -> bytes:
    """The pixels, samples or text. Raises InvalidRequest. Each library is imported by the first request that needs
    it."""
    if isinstance(request, DecodeImage):
        from jan_serve.helpers.work import images

        return images.decoded(request.data, request.header, request.size)
    if isinstance(request, DecodePdf):
        from jan_serve.helpers.work import pdf

        return pdf.text_of(request.data).encode()
    from jan_serve.helpers.work import audio

    return audio.decoded(request.data, request.header, request.rate)

"""What the first bytes of a sound say, and what is refused by them."""

from __future__ import annotations

import pytest

from jan_serve.audio_files import MAX_FILE_BYTES, AudioHeader, checked_header
from jan_serve.errors import InvalidAudio
from tests.support.media.sounds import flac, mp3, tone, wav

ID3 = b"ID3\x04\x00\x00\x00\x00\x02\x01" + bytes(257)
DAY = 24 * 3600 * 16_000

HEADERS: dict[str, tuple[bytes, AudioHeader]] = {
    "wav": (wav(), AudioHeader("WAV", 16_000, 1, 16_000)),
    "wav, stereo": (wav(channels=2), AudioHeader("WAV", 16_000, 2, 8_000)),
    "wav, floats": (wav(encoding=3), AudioHeader("WAV", 16_000, 1, 16_000)),
    "wav, 12 bits in 16": (wav()[:34] + b"\x0c\0" + wav()[36:], AudioHeader("WAV", 16_000, 1, 16_000)),
    "wav of a pipe": (wav(claimed=0xFFFFFFFF), AudioHeader("WAV", 16_000, 1, 16_000)),
    "wav of a pipe, without a length": (wav(claimed=0), AudioHeader("WAV", 16_000, 1, 16_000)),
    "flac": (flac(), AudioHeader("FLAC", 16_000, 1, 16_000)),
    "flac behind a tag": (ID3 + flac(), AudioHeader("FLAC", 16_000, 1, 16_000)),
    "mp3": (mp3(40), AudioHeader("MP3", 44_100, 2, 40 * 1152)),
    "mp3 behind a tag": (mp3(2, tag=ID3), AudioHeader("MP3", 44_100, 2, 2 * 1152)),
    "mp3 before a tag": (mp3(3) + b"TAG" + bytes(125), AudioHeader("MP3", 44_100, 2, 3 * 1152)),
}


@pytest.mark.parametrize(("data", "want"), HEADERS.values(), ids=HEADERS)
def test_headers(data: bytes, want: AudioHeader) -> None:
    assert checked_header(data) == want


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "text": (b"hello, this is a text", "not WAV, MP3 or FLAC"),
    "ogg": (b"OggS" + bytes(100), "not WAV, MP3 or FLAC"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(100), "not WAV, MP3 or FLAC"),
    "a jpeg, which begins as mp3 does": (b"\xff\xd8\xff\xe0" + bytes(100), "not WAV, MP3 or FLAC"),
    "one frame": (mp3(1), "not WAV, MP3 or FLAC"),
    "a tag alone": (ID3, "not WAV, MP3 or FLAC"),
    "a tag longer than the file": (b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f", "not WAV, MP3 or FLAC"),
    "cut off in its header": (wav()[:30], "ends within its header"),
    "cut off before its samples": (wav()[:36], "ends within its header"),
    "cut off in its samples": (wav()[:3000], "2956 bytes of samples; its header says 32000"),
    "flac, cut off in its header": (flac()[:20], "ends within its header"),
    "flac without a length": (flac(claimed=0), "does not say how long"),
    "half a day by its header": (wav(claimed=DAY), "lasts 43200 s; the limit is 600 s"),
    "flac, a day by its header": (flac(claimed=DAY), "lasts 86400 s; the limit is 600 s"),
    "mp3, ten minutes and a little": (mp3(23_100), "lasts 60[0-9] s; the limit is 600 s"),
    "no rate": (wav(tone(), rate=0), "0 samples a second"),
    "a rate of nobody": (wav(tone(), rate=2_000_000_000), "2000000000 samples a second"),
    "no channels": (wav(channels=0), "encoding"),
    "255 channels": (wav(channels=255), "255 channels; the limit is 8"),
    "another encoding": (wav(encoding=2), r"an encoding \(2\) other than PCM"),
    "no samples": (wav([]), "no samples"),
    "frames of 60,000 bytes for a sample of two": (
        wav()[:32] + (60_000).to_bytes(2, "little") + wav()[34:],
        "1 channels of 16 bits, and 60000 bytes for all of them",
    ),
    "no chunk of samples": (wav()[:12] + b"LIST\x04\x00\x00\x00abcd" * 300, "no header"),
    "too many bytes": (wav() + bytes(MAX_FILE_BYTES), "the limit is 26214400"),
}


@pytest.mark.parametrize(("data", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_by_their_headers(data: bytes, words: str) -> None:
    with pytest.raises(InvalidAudio, match=words):
        checked_header(data)


@pytest.mark.parametrize("data", [wav(), flac(), mp3(tag=ID3)], ids=["wav", "flac", "mp3"])
def test_every_prefix_and_changed_byte_has_a_header_or_is_refused(data: bytes) -> None:
    for end in range(min(len(data), 700)):
        for damaged in (
            data[:end],
            data[:end] + b"\xff" + data[end + 1 :],
            data[:end] + b"\0" + data[end + 1 :],
        ):
            try:
                header = checked_header(damaged)
            except InvalidAudio:
                continue
            assert 0 < header.seconds <= 600


def test_frames_at_another_rate() -> None:
    assert AudioHeader("WAV", 44_100, 2, 44_101).frames_at(16_000) == 16_001

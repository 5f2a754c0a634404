"""Sounds to samples: formats, rates, channels, and what is refused while it is decoded."""

from __future__ import annotations

import array
import itertools
import math

import pytest

from jan_serve.audio_files import checked_header
from jan_serve.errors import InvalidAudio
from jan_serve.helpers.work.audio import decoded
from tests.support.media.sounds import flac, mp3, tone, wav


def samples(data: bytes, rate: int = 16_000) -> list[float]:
    return array.array("f", decoded(data, checked_header(data), rate)).tolist()


@pytest.mark.parametrize(
    "data",
    [wav(), wav(encoding=3), flac(), wav(claimed=0xFFFFFFFF)],
    ids=["pcm", "floats", "flac", "of a pipe"],
)
def test_the_samples_are_those_that_were_written(data: bytes) -> None:
    found = samples(data)
    assert len(found) == 16_000
    assert max(abs(a - b) for a, b in zip(found, tone(), strict=True)) < 2e-4


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_other_rates_become_the_models(rate: int) -> None:
    data = wav(tone(rate=rate), rate=rate)
    found = samples(data)
    assert abs(len(found) - checked_header(data).frames_at(16_000)) <= 2
    power = math.fsum(value * value for value in found) / len(found)
    assert power == pytest.approx(1 / 8, rel=0.05)
    crossings = sum(a < 0 <= b for a, b in itertools.pairwise(found))
    assert crossings == pytest.approx(440, abs=2)


def test_channels_are_mixed() -> None:
    left_and_right = [value for sample in tone() for value in (sample, -sample)]
    assert max(map(abs, samples(wav(left_and_right, channels=2)))) < 1e-3


def test_mp3_is_as_long_as_its_frames() -> None:
    data = mp3(100)
    found = samples(data)
    assert len(found) == pytest.approx(checked_header(data).frames_at(16_000), abs=1200)
    assert max(map(abs, found)) < 1e-3


FLOATS = {"not a number": math.nan, "infinity": math.inf, "a giant": 1e30}


@pytest.mark.parametrize("value", FLOATS.values(), ids=FLOATS)
def test_samples_that_are_no_sound_are_refused(value: float) -> None:
    data = wav([*tone(0.5), value, *tone(0.5)], encoding=3)
    with pytest.raises(InvalidAudio, match="samples that are no sound"):
        samples(data)


def test_a_header_without_samples_behind_it_is_refused() -> None:
    with pytest.raises(InvalidAudio, match="damaged"):
        samples(flac()[:50])


def test_a_flac_file_that_is_longer_than_it_says_ends_at_the_limit() -> None:
    data = flac(tone(0.25), claimed=1000)
    assert len(samples(data)) <= 4_000

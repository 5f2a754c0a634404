from __future__ import annotations

import pytest

from jan_serve.image_files.limits import (
    MAX_IMAGES,
    MAX_SHOWN_PIXELS,
    MIN_SHOWN_SIDE,
    shown_pixels,
    shown_size,
)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((448, 448), (448, 448)),
        ((2048, 2048), (2048, 2048)),
        ((1, 1), (8, 8)),
        ((1, 200), (8, 1600)),
        ((300, 4), (600, 8)),
        ((8000, 4000), (2896, 1448)),
    ],
)
def test_a_model_sees_images_as_they_are_within_bounds(size: tuple[int, int], shown: tuple[int, int]) -> None:
    assert shown_size(*size) == shown


def test_no_size_within_the_limits_is_shown_beyond_the_bounds() -> None:
    for size in ((80_000, 400), (5656, 5656), (32_000, 1000), (4, 800), (2049, 2048)):
        for width, height in (size, size[::-1]):
            shown = shown_size(width, height)
            assert shown[0] * shown[1] <= MAX_SHOWN_PIXELS
            assert min(shown) >= MIN_SHOWN_SIDE
            assert abs(shown[0] / shown[1] - width / height) < 0.02 * width / height


def test_an_image_more_seldom_changes_what_is_shown_of_the_others() -> None:
    """Each change makes a conversation's images be computed again."""
    shown = [shown_pixels(count) for count in range(1, MAX_IMAGES + 1)]
    assert shown == [MAX_SHOWN_PIXELS] * 16 + [MAX_SHOWN_PIXELS // 2] * 16 + [MAX_SHOWN_PIXELS // 4] * 32
    assert shown_size(2560, 1440, shown_pixels(20)) == (1930, 1086)
    assert shown_size(1280, 800, shown_pixels(64)) == (1280, 800)

"""Draws the clients of a burst over time: a lane each, grey while it waits, with its answer and its pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.burst_rows import Lane
from benchmarks.plot import COLOURS, WIDTH, page, text

_LANE, _BAR, _LEFT = 14, 10, 40
_PAUSE_S = 0.5
"""A longer time between two pieces is drawn as a gap."""


def write_lanes(path: Path, lanes: Mapping[str, Sequence[Lane]]) -> None:
    """lanes: by server. All have one axis of time, in seconds."""
    end_s = max(lane.pieces[-1] for each in lanes.values() for lane in each)
    scale = (WIDTH - _LEFT - 40) / end_s
    parts: list[str] = []
    y = 40.0
    for colour, (server, each) in zip(COLOURS, lanes.items(), strict=False):
        parts.append(text(8, y + 10, server))
        y += 18
        for lane in sorted(each, key=lambda lane: lane.pieces[0]):
            parts.append(_lane(lane, y, scale, colour))
            y += _LANE
        y += 14
    step_s = next(step for step in (1, 2, 5, 10, 20, 50, 100, 500, 10_000) if end_s / step <= 10)
    parts += [
        text(_LEFT + scale * second - 4, y + 6, f"{second} s", small=True)
        for second in range(0, int(end_s) + 1, step_s)
    ]
    path.write_text(page(list(lanes), y + 20, "".join(parts)), encoding="utf-8")


def _lane(lane: Lane, y: float, scale: float, colour: str) -> str:
    """Waiting, then the runs of pieces between which there is no pause."""
    first, last = lane.pieces[0], lane.pieces[-1]
    parts = [
        _bar(lane.asked_s, first, y, scale, "#e2e8f0"),
        _bar(first, last, y + 4, scale, colour, height=2),
    ]
    start = first
    for earlier, later in zip(lane.pieces, [*lane.pieces[1:], float("inf")], strict=True):
        if later - earlier > _PAUSE_S:
            parts.append(_bar(start, earlier, y, scale, colour))
            start = later
    return "".join(parts)


def _bar(start_s: float, end_s: float, y: float, scale: float, colour: str, *, height: int = _BAR) -> str:
    width = max(1.5, scale * (end_s - start_s))
    return (
        f'<rect x="{_LEFT + scale * start_s:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"'
        f' fill="{colour}"/>'
    )

"""Plots the medians as SVG: bars of each row's headline (one scale per row), lines of the curves."""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.figures import Figures
from benchmarks.rows import ROWS

COLOURS = ("#2563eb", "#f59e0b", "#64748b")
WIDTH, _LABEL, _BAR, _GAP = 720, 210, 16, 14


def write_svg(path: Path, medians: dict[str, dict[str, Figures]]) -> None:
    """medians: by server, ours first, by row, as `report.medians` gives them."""
    servers = list(medians)
    parts: list[str] = []
    y = 40
    for row in ROWS:
        values = [medians[server].get(row.name, {}).get(row.headline) for server in servers]
        largest = max((value for value in values if value is not None), default=0.0)
        if largest <= 0.0:
            continue
        better = "less is better" if row.lower_is_better else "more is better"
        parts.append(text(8, y + 12, row.name))
        parts.append(text(8, y + 26, f"{row.headline}, {better}", small=True))
        for colour, value in zip(COLOURS, values, strict=False):
            if value is None:
                continue
            width = (WIDTH - _LABEL - 110) * value / largest
            parts.append(f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
            parts.append(text(_LABEL + width + 6, y + 12, f"{value:.3g} {row.unit}", small=True))
            y += _BAR + 2
        y += _GAP
    path.write_text(page(servers, y, "".join(parts)), encoding="utf-8")


# Row, its figures, their title; the number in a figure's name is its position on the x axis.
_CURVES = (
    (
        "context-curve",
        re.compile(r"prefill_(\d+)k_per_s"),
        "prefill, tokens/s by thousands of tokens of context",
    ),
    ("context-curve", re.compile(r"decode_(\d+)k_ms"), "ms between tokens by thousands of tokens of context"),
    ("stream-curve", re.compile(r"streams_(\d+)"), "tokens/s of all streams by their number"),
)
PANEL, _LEFT, _HEIGHT = 230, 60, 150


def write_curves(path: Path, medians: dict[str, dict[str, Figures]]) -> None:
    """medians: as for `write_svg`. One panel per curve, one line per server; points are evenly spaced."""
    parts: list[str] = []
    top = 40
    for row, pattern, title in _CURVES:
        lines = {
            server: {
                int(found[1]): value
                for key, value in rows.get(row, {}).items()
                if (found := pattern.fullmatch(key))
            }
            for server, rows in medians.items()
        }
        places = sorted({place for line in lines.values() for place in line})
        if len(places) < 2:
            continue
        parts.append(panel(top, title, places, lines))
        top += PANEL
    path.write_text(page(list(medians), top, "".join(parts)), encoding="utf-8")


def panel(top: float, title: str, places: list[int], lines: dict[str, dict[int, float]]) -> str:
    """places: in order, two at least. lines: by name, values by place."""
    largest = max(value for line in lines.values() for value in line.values())
    step = (WIDTH - _LEFT - 40) / (len(places) - 1)
    bottom = top + 20 + _HEIGHT

    def at(place: int, value: float) -> tuple[float, float]:
        return _LEFT + step * places.index(place), bottom - _HEIGHT * value / largest

    parts = [text(8, top + 10, title)]
    for share in (0.0, 0.5, 1.0):
        y = bottom - _HEIGHT * share
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - 40}" stroke="#e2e8f0"/>')
        parts.append(text(8, y + 4, f"{largest * share:.3g}", small=True))
    parts += [text(at(place, 0.0)[0] - 4, bottom + 16, str(place), small=True) for place in places]
    for colour, line in zip(COLOURS, lines.values(), strict=False):
        points = [at(place, line[place]) for place in places if place in line]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return "".join(parts)


def page(servers: list[str], height: float, content: str) -> str:
    legend = "".join(
        f'<rect x="{_LABEL + 150 * i}" y="12" width="12" height="12" fill="{colour}"/>'
        + text(_LABEL + 150 * i + 18, 22, server)
        for i, (colour, server) in enumerate(zip(COLOURS, servers, strict=False))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
        ' font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{legend}{content}</svg>\n'
    )


def text(x: float, y: float, text: str, *, small: bool = False) -> str:
    size, colour = (11, "#64748b") if small else (13, "#0f172a")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(text)}</text>'

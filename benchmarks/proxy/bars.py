"""Draws one bar for each contender of each scenario, on a logarithmic scale."""

from __future__ import annotations

import math
from pathlib import Path
from xml.sax.saxutils import escape

_COLOURS = ("#2563eb", "#f59e0b", "#64748b", "#94a3b8", "#a16207", "#7c3aed")
_WIDTH, _LABEL, _BAR = 760, 250, 11
_LEAST_S, _MOST_S = 0.05, 300.0


def write_bars(path: Path, seconds: dict[str, dict[str, float]]) -> None:
    """seconds: by scenario and contender; each contender has one colour."""
    names = list(dict.fromkeys(name for each in seconds.values() for name in each))
    colours = dict(zip(names, _COLOURS, strict=False))
    y, parts = (
        46.0,
        [_text(8, 16, "95th percentile of the time to the first token, seconds (logarithmic)", 13)],
    )
    for index, name in enumerate(names):
        x = 8 + 122 * index
        parts.append(f'<rect x="{x}" y="24" width="10" height="10" fill="{colours[name]}"/>')
        parts.append(_text(x + 14, 33, name, 11))
    for scenario, each in seconds.items():
        parts.append(_text(8, y + 10, scenario, 12))
        for name, value in each.items():
            width = _length(value)
            parts.append(
                f'<rect x="{_LABEL}" y="{y:.0f}" width="{width:.1f}" height="{_BAR}" fill="{colours[name]}"/>'
            )
            parts.append(_text(_LABEL + width + 5, y + 9, f"{value:.2g}", 10))
            y += _BAR + 1
        y += 8
    body = "".join(parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y:.0f}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>\n',
        encoding="utf-8",
    )


def _length(value: float) -> float:
    share = math.log(min(max(value, _LEAST_S), _MOST_S) / _LEAST_S) / math.log(_MOST_S / _LEAST_S)
    return max(1.0, (_WIDTH - _LABEL - 60) * share)


def _text(x: float, y: float, text: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#0f172a">{escape(text)}</text>'

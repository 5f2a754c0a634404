"""A picture of the medians: one bar a server for each row's headline, as SVG. Bars of a row share a scale."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.figures import Figures
from benchmarks.rows import ROWS

_COLOURS = ("#2563eb", "#f59e0b")
_WIDTH, _LABEL, _BAR, _GAP = 720, 210, 16, 14


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
        parts.append(_text(8, y + 12, row.name))
        parts.append(_text(8, y + 26, f"{row.headline}, {better}", small=True))
        for colour, value in zip(_COLOURS, values, strict=False):
            if value is None:
                continue
            width = (_WIDTH - _LABEL - 110) * value / largest
            parts.append(f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
            parts.append(_text(_LABEL + width + 6, y + 12, f"{value:.3g} {row.unit}", small=True))
            y += _BAR + 2
        y += _GAP
    legend = "".join(
        f'<rect x="{_LABEL + 150 * i}" y="12" width="12" height="12" fill="{colour}"/>'
        + _text(_LABEL + 150 * i + 18, 22, server)
        for i, (colour, server) in enumerate(zip(_COLOURS, servers, strict=False))
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{legend}{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def _text(x: float, y: float, text: str, *, small: bool = False) -> str:
    size, colour = (11, "#64748b") if small else (13, "#0f172a")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(text)}</text>'

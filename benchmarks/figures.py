"""What a row gives."""

from __future__ import annotations

Figures = dict[str, float]

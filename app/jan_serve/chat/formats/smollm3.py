"""SmolLM3: thoughts and calls as Hermes writes them; its template speaks of `xml_tools`, or of no tools at all."""

from __future__ import annotations

from dataclasses import replace

from jan_serve.chat.formats.format import Marks
from jan_serve.chat.formats.hermes import HERMES

SMOLLM3 = replace(HERMES, name="smollm3", marks=Marks(any_of=("xml_tools", "named SmolLM")))

"""For templates that know no tools: the instructions (`instructions.py`) tell the model to write as Hermes does.

Tags make a call known at once, so text still streams; and it is the form that most models have seen.
"""

from __future__ import annotations

from dataclasses import replace

from jan_serve.chat.formats.format import Marks
from jan_serve.chat.formats.hermes import HERMES

GENERIC = replace(HERMES, name="generic", marks=Marks())

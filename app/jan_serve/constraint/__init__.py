"""Constraints on generated text: JSON Schema, regular expressions and GBNF over one grammar tree. Pure: no I/O, no
clock, no llama.cpp. A constraint is enforced exactly, or refused with the place and the reason: see `enforce.py`."""

"""Short Python with a hole in the middle of a line; the middle follows from its surroundings."""

from __future__ import annotations

from keyword import iskeyword

from models.recipe.corpus.conversation import Infill
from models.recipe.corpus.draw import Draw

_NAMES = (
    "item value name total count index result text line word key user data node left right first last size width "
    "height price score number letter path file row column start end step rate limit level color title message"
).split()
_MODULES = {
    "os": "getcwd()",
    "sys": "argv",
    "json": "dumps({x})",
    "math": "sqrt({x})",
    "random": "random()",
    "time": "time()",
    "re": "compile({x})",
    "string": "digits",
}
_OPERATIONS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

# « » hold the middle. Names are drawn, so that the middle has to be read off the rest.
_LINES = (
    "for {x} in {y}s:\n    print(«{x}»)\n",
    "for {x} in {y}:\n    {z}.append(«{x}»)\n",
    "def get_{x}(self):\n    return self.«{x}»\n",
    "def set_{x}(self, {x}):\n    self.{x} = «{x}»\n",
    "class {X}:\n    def __init__(self, {x}):\n        self.«{x}» = {x}\n",
    "{x} = {n}\n{y} = {x} + {m}\nprint(«{y}»)\n",
    "with open({x}) as «{y}»:\n    {z} = {y}.read()\n",
    "with open({x}) as {y}:\n    {z} = «{y}».read()\n",
    "if {x} > {n}:\n    {x} = «{n}»\n",
    "if {x} is None:\n    «{x}» = {n}\n",
    "while {x} < {n}:\n    «{x}» += 1\n",
    "{x}s = [«{x}» for {x} in {y}]\n",
    "{x}s = [{x}.{y} for «{x}» in {z}]\n",
    "def {x}({y}, {z}):\n    return «{y}» + {z}\n",
    "def {x}({y}):\n    return len(«{y}»)\n",
    "try:\n    {x} = int({y})\nexcept «ValueError»:\n    {x} = {n}\n",
    "print(f\"{{{{x}}}} = {{«{x}»}}\")\n".replace("{{{{x}}}}", "{x}"),
    "def {x}({y}: int) -> «int»:\n    return {y} * {n}\n",
    "{x}, {y} = {y}, «{x}»\n",
    "assert {x} == {n}, «{x}»\n",
    "{x} = {{}}\n«{x}»[\"{y}\"] = {n}\n",
    "import {module}\n\nprint(«{module}».{member})\n",
    "import «{module}»\n\n{y} = {module}.{member}\n",
    "def {op}({x}, {y}):\n    return {x} «{sign}» {y}\n",
    "def {op}({x}, {y}):\n    return «{x} {sign} {y}»\n",
    "for {x} in range(«{n}»):  # {n} times\n    print({x})\n",
    "def max_of({x}, {y}):\n    return {x} if {x} > {y} else «{y}»\n",
    "def min_of({x}, {y}):\n    return {x} if {x} < {y} else «{y}»\n",
    "def is_{w}({x}):\n    return {x} == \"«{w}»\"\n",
    "{x} = [{n}, {m}]\nfor {y} in «{x}»:\n    print({y})\n",
)  # fmt: skip


def generate(draw: Draw) -> Infill:
    """One short snippet with one hole, at times with another line before or after it."""
    code = _fill(draw, draw.choice(_LINES))
    prefix, _, rest = code.partition("«")
    middle, _, suffix = rest.partition("»")
    if draw.chance(0.3):
        prefix = _fill(draw, draw.choice(_LINES)).replace("«", "").replace("»", "") + "\n" + prefix
    if draw.chance(0.2):
        suffix += "\n" + _fill(draw, draw.choice(_LINES)).replace("«", "").replace("»", "")
    if draw.chance(0.3):
        suffix = suffix.rstrip("\n")
    return Infill(prefix, suffix, middle)


def _fill(draw: Draw, line: str) -> str:
    x, y, z, w = draw.sample(_NAMES, 4)
    if draw.chance(0.3):
        x = draw.invented()
        x += "s" if iskeyword(x) else ""
    if draw.chance(0.2):
        y = f"{y}_{draw.choice(('id', 'list', 'name', 'max', 'min', 'new', 'old'))}"
    module = draw.choice(tuple(_MODULES))
    op = draw.choice(tuple(_OPERATIONS))
    first, second = draw.between(2, 999), draw.between(2, 99)
    member = _MODULES[module].replace("{x}", x)
    return line.format(
        x=x,
        y=y,
        z=z,
        w=w,
        X=x.capitalize(),
        n=first,
        m=second,
        module=module,
        member=member,
        op=op,
        sign=_OPERATIONS[op],
    )

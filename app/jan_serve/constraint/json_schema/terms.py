"""Terms and conjunctions: which nodes hold or fail at one place, simplified as far as their text shows."""

from __future__ import annotations

import json
from typing import Any

from jan_serve.constraint.json_schema.document import Document, Node, Term
from jan_serve.constraint.json_schema.ir import TRUE, Conj
from jan_serve.constraint.json_schema.keywords import ASSERTIONS
from jan_serve.constraint.limits import spend
from jan_serve.errors import UnsupportedSchema


class Terms:
    """Makes conjunctions of one document. All results are canonical: trivial terms are gone, references followed."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.false: Conj = (document.false.positive,)
        self._targets: dict[int, Conj] = {}

    def positive(self, node: Node) -> Conj:
        """The conjunction that says that `node` holds: at most one term."""
        schema = node.schema
        if schema is False:
            return self.false
        if node.is_trivial():
            return TRUE
        if "$ref" in schema and len(ASSERTIONS.intersection(schema)) == 1:
            return self._follow(node)
        return (node.positive,)

    def _follow(self, node: Node) -> Conj:
        """A schema that is only a `$ref` stands for its target."""
        start = node
        known = self._targets.get(id(start))
        if known is not None:
            return known
        visited = {id(node)}
        while True:
            node = self.document.resolve(node, "$ref")
            if id(node) in visited:
                raise UnsupportedSchema(start.pointer, "$ref", "the reference leads back to itself")
            visited.add(id(node))
            schema = node.schema
            if schema is False:
                result = self.false
                break
            if node.is_trivial():
                result = TRUE
                break
            if not ("$ref" in schema and len(ASSERTIONS.intersection(schema)) == 1):
                result = (node.positive,)
                break
        self._targets[id(start)] = result
        return result

    def negative(self, node: Node) -> Conj:
        """The conjunction that says that `node` fails."""
        conj = self.positive(node)
        if conj == TRUE:
            return self.false
        if conj == self.false:
            return TRUE
        return (conj[0].opposite,)

    def conjoin(self, a: Conj, b: Conj) -> Conj:
        """Both; the false conjunction where one visibly contradicts the other."""
        if not b or a == b:
            return a
        if not a:
            return b
        if a == self.false or b == self.false:
            return self.false
        spend(1 + len(a) * len(b) // 4)
        result = list(a)
        for term in b:
            if term in result:
                continue
            if any(self._contradict(term, other) for other in result):
                return self.false
            result.append(term)
        return tuple(result)

    @staticmethod
    def _contradict(a: Term, b: Term) -> bool:
        if a.positive == b.positive:
            return False
        if a.node is b.node:
            return True
        here, there = a.node, b.node
        return here.base == there.base and here.scope == there.scope and _same(here.schema, there.schema)


def _same(a: Any, b: Any) -> bool:
    """Whether two schemas are written alike. Python's equality alone takes false for 0 and 1 for true."""
    return a == b and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)

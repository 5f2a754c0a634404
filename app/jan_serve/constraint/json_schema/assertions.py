"""Values that the assertion keywords of one schema allow, by type. In-place applicators are not read here."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import reduce
from math import inf, isfinite
from typing import Any, Final

from msgspec.structs import replace

from jan_serve.constraint.json_schema import ir, keywords
from jan_serve.constraint.json_schema.document import Document, Subschema, as_array, as_object
from jan_serve.constraint.json_schema.scalars import numbers, strings
from jan_serve.constraint.json_schema.scalars.formats import FORMATS
from jan_serve.constraint.json_schema.scalars.numbers import ANY_NUMBER, NumberSpec
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, NO_STRING, StringSet
from jan_serve.constraint.limits import MAX_COUNT
from jan_serve.errors import InvalidSchema, UnsupportedPattern, UnsupportedSchema

_COUNT_DIGITS: Final = 20
_GEMINI_TYPES: Final = {name.upper(): name for name in keywords.TYPES}


class Assertions:
    """Reads the keywords of one subschema; every wrong value is an InvalidSchema that names its place."""

    def __init__(self, document: Document, terms: ir.Terms) -> None:
        self._document = document
        self._terms = terms

    def allowed(self, subschema: Subschema) -> ir.TypeSets:
        """The values that satisfy `type` and the keywords of each single type; `enum` and `const` are left out."""
        schema = subschema.schema
        result = self.types(subschema)
        if not keywords.NUMBER_KEYWORDS.isdisjoint(schema) and result.number:
            own = self.number(subschema)
            found = (numbers.intersect(s, own) for s in result.number)
            result = replace(result, number=tuple(s for s in found if s is not None))
        if not keywords.STRING_KEYWORDS.isdisjoint(schema) and result.string != NO_STRING:
            result = replace(result, string=self.string(subschema))
        if not keywords.ARRAY_KEYWORDS.isdisjoint(schema) and result.array:
            result = replace(result, array=(self.array(subschema),))
        if not keywords.OBJECT_KEYWORDS.isdisjoint(schema) and result.object:
            result = replace(result, object=(self.object(subschema),))
        return result

    # type, enum, const

    def types(self, subschema: Subschema) -> ir.TypeSets:
        if "type" not in subschema.schema:
            return ir.ANY_VALUE
        names = self.type_names(subschema)
        number: tuple[NumberSpec, ...] = ()
        if "number" in names:
            number = ANY_NUMBER
        elif "integer" in names:
            number = (NumberSpec(integer=True),)
        return ir.TypeSets(
            "null" in names,
            ir.ANY_BOOLEAN if "boolean" in names else ir.NO_BOOLEAN,
            number,
            ANY_STRING if "string" in names else NO_STRING,
            ir.ANY_ARRAY if "array" in names else (),
            ir.ANY_OBJECT if "object" in names else (),
        )

    def type_names(self, subschema: Subschema) -> list[str]:
        """The value of `type` as a list, with what OpenAPI 3.0 and Gemini's API mean where no draft is named."""
        value = subschema.schema["type"]
        names = as_array(value) or [value]
        if not self._document.names_draft:
            names = [_GEMINI_TYPES.get(name, name) if isinstance(name, str) else name for name in names]
            if subschema.schema.get("nullable") is True:
                names = [*names, "null"]
        for name in names:
            if name not in keywords.TYPES:
                raise InvalidSchema(f"{subschema.pointer}/type", f"{str(name)[:50]!r} is not a JSON type")
        return names

    def constant(self, subschema: Subschema, value: Any) -> ir.TypeSets:
        if value is None:
            return replace(ir.NO_VALUE, null=True)
        if isinstance(value, bool):
            return replace(ir.NO_VALUE, boolean=ir.TRUE_ONLY if value else ir.FALSE_ONLY)
        if isinstance(value, int | float):
            return replace(ir.NO_VALUE, number=(self.point(subschema, value),))
        if isinstance(value, str):
            return replace(ir.NO_VALUE, string=strings.OneOfStrings((value,)))
        items, members = as_array(value), as_object(value)
        if items is not None:
            parts = tuple((self._document.constant(subschema, item).positive,) for item in items)
            return replace(
                ir.NO_VALUE, array=(ir.ArraySpec(parts, self._terms.false, len(parts), len(parts)),)
            )
        if members is not None:
            props: dict[str, ir.Conj] = {
                name: (self._document.constant(subschema, item).positive,) for name, item in members.items()
            }
            rules = (ir.NameRule(ANY_STRING, self._terms.false),)
            return replace(ir.NO_VALUE, object=(ir.ObjectSpec(props, rules, tuple(props)),))
        raise InvalidSchema(subschema.pointer, "a constant is not a JSON value")

    def point(self, subschema: Subschema, value: float) -> NumberSpec:
        """One number, with its spelling where that is not an integer's."""
        exact = self._fraction(subschema, value)
        return numbers.point(exact, json.dumps(value) if isinstance(value, float) else None)

    def _fraction(self, subschema: Subschema, value: Any, keyword: str = "enum") -> Fraction:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must be a number")
        if isinstance(value, float) and not isfinite(value):
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must be a finite number")
        return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)

    # numbers

    def bounds(self, subschema: Subschema) -> list[tuple[str, Fraction, bool]]:
        """(`minimum` or `maximum`, bound, excluded) for every bound keyword, draft 4 booleans included."""
        schema = subschema.schema
        result: list[tuple[str, Fraction, bool]] = []
        for keyword, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            flag = schema.get(exclusive)
            # Larger numbers than a double holds are read as infinite.
            none = inf if keyword == "maximum" else -inf
            if keyword in schema and schema[keyword] != none:
                result.append((keyword, self._fraction(subschema, schema[keyword], keyword), flag is True))
            if flag is not None and not isinstance(flag, bool) and flag != none:
                result.append((keyword, self._fraction(subschema, flag, exclusive), True))
        return result

    def multiple_of(self, subschema: Subschema) -> Fraction | None:
        if "multipleOf" not in subschema.schema:
            return None
        value = self._fraction(subschema, subschema.schema["multipleOf"], "multipleOf")
        if value <= 0:
            raise InvalidSchema(f"{subschema.pointer}/multipleOf", "must be greater than 0")
        return value

    def number(self, subschema: Subschema) -> NumberSpec:
        """Numbers that the number keywords allow."""
        multiple = self.multiple_of(subschema)
        result = NumberSpec(multiples=frozenset({multiple}) if multiple is not None else frozenset())
        for keyword, bound, is_open in self.bounds(subschema):
            low, high = (bound, None) if keyword == "minimum" else (None, bound)
            spec = NumberSpec(low, is_open, high, is_open)
            result = numbers.intersect(result, spec) or NumberSpec(low=Fraction(1), high=Fraction(0))
        return result

    # strings

    def string(self, subschema: Subschema) -> StringSet:
        """Strings that the string keywords allow."""
        schema = subschema.schema
        parts: list[StringSet] = []
        if "pattern" in schema:
            parts.append(self.pattern(subschema, "pattern", schema["pattern"]))
        name = schema.get("format")
        if isinstance(name, str) and name in FORMATS and name != "base64":
            parts.append(strings.Format(name))
        if schema.get("contentEncoding") == "base64":
            parts.append(strings.Format("base64"))
        low, high = self.count(subschema, "minLength"), self.count(subschema, "maxLength")
        if low or high is not None:
            is_empty = high is not None and high < (low or 0)
            parts.append(NO_STRING if is_empty else strings.Length(low or 0, high))
        return strings.intersect_all(parts)

    def pattern(self, subschema: Subschema, keyword: str, pattern: Any) -> StringSet:
        """The strings that a pattern is found in."""
        if not isinstance(pattern, str):
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "a pattern is a string")
        try:
            return strings.pattern_set(pattern)
        except UnsupportedPattern as error:
            reason = f"{error.reason} (at character {error.position} of {pattern[:100]!r})"
            raise UnsupportedSchema(subschema.pointer, keyword, reason) from error

    def count(self, subschema: Subschema, keyword: str) -> int | None:
        """The value of a keyword that counts; integral floats are integers. None for a bound that no text reaches."""
        if keyword not in subschema.schema:
            return None
        value = subschema.schema[keyword]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_gemini = not self._document.names_draft and not keyword.endswith("Contains")
        if is_gemini and isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:_COUNT_DIGITS])  # Gemini's API writes its counts as strings
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", "must be an integer of 0 or more")
        if value > MAX_COUNT:
            if keyword.startswith("min"):
                raise UnsupportedSchema(subschema.pointer, keyword, f"no answer has more than {MAX_COUNT:,}")
            return None
        return value

    # arrays

    def items(self, subschema: Subschema) -> tuple[tuple[ir.Conj, ...], ir.Conj]:
        """(positional items, all others), in the spelling of any draft."""
        schema = subschema.schema
        positive, child = self._terms.positive, self._document.child
        items = as_array(schema.get("items"))
        prefix: tuple[ir.Conj, ...] = ()
        rest: ir.Conj = ir.TRUE
        if "prefixItems" in schema:
            self._check(subschema, "prefixItems", list, "an array of schemas")
            prefix = tuple(
                positive(child(subschema, "prefixItems", i)) for i in range(len(schema["prefixItems"]))
            )
        if items is not None:
            prefix = tuple(positive(child(subschema, "items", i)) for i in range(len(items)))
            if "additionalItems" in schema:
                rest = positive(child(subschema, "additionalItems"))
        elif "items" in schema:
            rest = positive(child(subschema, "items"))
        return prefix, rest

    def array(self, subschema: Subschema) -> ir.ArraySpec:
        """Arrays that the array keywords allow."""
        schema = subschema.schema
        prefix, rest = self.items(subschema)
        contains: tuple[ir.Contains, ...] = ()
        if "contains" in schema:
            low, high = self.count(subschema, "minContains"), self.count(subschema, "maxContains")
            conj = self._terms.positive(self._document.child(subschema, "contains"))
            contains = (ir.Contains(conj, 1 if low is None else low, high),)
        tuple_form = isinstance(schema.get("items"), list)
        covers_all = "additionalItems" in schema if tuple_form else "items" in schema
        return ir.ArraySpec(
            prefix,
            rest,
            self.count(subschema, "minItems") or 0,
            self.count(subschema, "maxItems"),
            contains,
            schema.get("uniqueItems") is True,
            None if covers_all else len(prefix),
            tuple(own.conj for own in contains) if self._document.draft >= 2020 else (),
        )

    # objects

    def _check(self, subschema: Subschema, keyword: str, kind: type, what: str) -> None:
        if not isinstance(subschema.schema[keyword], kind):
            raise InvalidSchema(f"{subschema.pointer}/{keyword}", f"must be {what}")

    def properties(self, subschema: Subschema) -> dict[str, Any]:
        if "properties" in subschema.schema:
            self._check(subschema, "properties", dict, "an object of schemas")
        listed = subschema.schema.get("properties", {})
        ordering = None if self._document.names_draft else as_array(subschema.schema.get("propertyOrdering"))
        first = {name: listed[name] for name in ordering or () if isinstance(name, str) and name in listed}
        return first | listed  # Gemini's API orders properties by `propertyOrdering`

    def values(self, subschema: Subschema) -> list[Any]:
        values = as_array(subschema.schema["enum"])
        if values is None:
            raise InvalidSchema(f"{subschema.pointer}/enum", "must be an array")
        return values

    def required(self, subschema: Subschema) -> tuple[str, ...]:
        """The names in `required`. Draft 3's boolean form says nothing about this schema."""
        value = subschema.schema.get("required", [])
        if isinstance(value, bool) and self._document.draft == 3:
            return ()
        names = as_array(value)
        if names is None or not all(isinstance(name, str) for name in names):
            raise InvalidSchema(f"{subschema.pointer}/required", "must be an array of names")
        return tuple(dict.fromkeys(names))

    def pattern_rules(self, subschema: Subschema) -> list[ir.NameRule]:
        """One rule per member of `patternProperties`."""
        if "patternProperties" not in subschema.schema:
            return []
        self._check(subschema, "patternProperties", dict, "an object of schemas")
        return [
            ir.NameRule(
                self.pattern(subschema, "patternProperties", pattern),
                self._terms.positive(self._document.child(subschema, "patternProperties", pattern)),
            )
            for pattern in subschema.schema["patternProperties"]
        ]

    def additional_names(self, subschema: Subschema) -> StringSet:
        """Names that `patternProperties` leaves to `additionalProperties`; `properties` are not taken out."""
        return strings.intersect_all(strings.complement(rule.names) for rule in self.pattern_rules(subschema))

    def object(self, subschema: Subschema) -> ir.ObjectSpec:
        """Objects that the object keywords allow; dependencies and `propertyNames` are left out."""
        schema = subschema.schema
        terms, child = self._terms, self._document.child
        patterns = self.pattern_rules(subschema)
        props: dict[str, ir.Conj] = {}
        for name in self.properties(subschema):
            conj = terms.positive(child(subschema, "properties", name))
            for rule in patterns:
                if strings.contains(rule.names, name):
                    conj = terms.conjoin(conj, rule.conj)
            props[name] = conj
        rules = [rule for rule in patterns if rule.conj]
        seen: StringSet = NO_STRING
        if self.tracks:
            seen = reduce(
                strings.unite, (rule.names for rule in patterns), strings.OneOfStrings(tuple(props))
            )
        if "additionalProperties" in schema:
            seen = ANY_STRING
            additional = terms.positive(child(subschema, "additionalProperties"))
            if additional:
                rules.append(ir.NameRule(self.additional_names(subschema), additional))
        required = self.required(subschema)
        high = self.count(subschema, "maxProperties")
        return ir.ObjectSpec(
            props, tuple(rules), required, self.count(subschema, "minProperties") or 0, high, (), seen
        )

    tracks: bool = False
    """Whether `seen` names are needed, which is so where the document has an `unevaluated` keyword."""

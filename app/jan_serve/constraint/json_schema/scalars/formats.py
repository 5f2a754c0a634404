"""The string formats, as ECMA-262 patterns that match the whole value. Sources: RFC 3339 (date, time, date-time;
duration: appendix A), RFC 5321 (email, without quoted local parts and address literals), RFC 1123 (hostname), RFC 2673
and 4291 (ipv4, ipv6), RFC 3986 (uri), RFC 4122 (uuid), RFC 6901 (json-pointer). A format that is not listed is an
annotation, as the JSON Schema core says."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from jan_serve.constraint.ast import Expr, sequence
from jan_serve.constraint.regex.language import full_regex, structure_expr
from jan_serve.constraint.regex.syntax import EPSILON, Loop, Regex, alternation, concat, parse_regex
from jan_serve.constraint.text_form import PlainText

_HEX: Final = "[0-9A-Fa-f]"
_CATEGORY: Final = "L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|C[cfnos]?"
_PROPERTY: Final = f"(?:gc=)?(?:{_CATEGORY})"
_CODES: Final = (
    f"[dDwWsStnrvf^$\\\\.*+?()[\\]{{}}|/]|c[A-Za-z]|x{_HEX}{{2}}|u{_HEX}{{4}}"
    f"|u\\{{(?:{_HEX}{{1,5}}|10{_HEX}{{4}})\\}}|[pP]\\{{(?:{_PROPERTY})\\}}"
)
_LITERAL: Final = "[^\\u0000-\\u001f^$\\\\.*+?()[\\]{}|]"
_ANCHOR: Final = "[\\^$]|\\\\[bB]"
_NAME: Final = "[A-Za-z_$][A-Za-z0-9_$]*"


def _ordered(alphabet: str, separator: str) -> str:
    """Two characters of the alphabet, the second not before the first, with a separator between them."""
    last = alphabet[-1]
    return "|".join(f"{c}{separator}[{c}-{last}]" for c in alphabet)


def regex_language() -> Regex:
    """An expression whose words are valid expressions."""
    alphabets = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    ranges = "|".join([*(_ordered(alphabet, "-") for alphabet in alphabets), "[ !]-[/-@A-Z_a-z{-~]"])
    member = f"(?:{ranges}|\\\\(?:{_CODES}|[b-])|[^\\u0000-\\u001f\\\\\\]-])"
    # A dash stands for itself at the ends only: elsewhere it could make a range of what is not in order.
    character_class = f"\\[\\^?-?{member}*-?\\]"
    ordered = f"{_ordered('0123456789', ',')}|[0-9],[1-9][0-9]{{1,2}}|[0-9]{{2}},[1-9][0-9]{{2}}"
    quantifier = f"(?:(?:[*+?]|\\{{(?:[0-9]{{1,3}},?|{ordered})\\}})\\??)?"
    piece = parse_regex(f"{_ANCHOR}|\\||(?:{_LITERAL}|\\\\(?:{_CODES})|\\.|{character_class}){quantifier}")
    groups = ("\\((?:\\?:)?", "\\(\\?<?[=!]", f"\\(\\?<{_NAME}>")
    group, look, named = map(parse_regex, groups)
    close, repeated = parse_regex("\\)"), parse_regex(f"\\){quantifier}")

    def any_of(*parts: Regex) -> Regex:
        return Loop(alternation([piece, *parts]), 0, None)

    inner = any_of(concat([group, any_of(), repeated]))
    outer = any_of(concat([group, inner, repeated]), concat([look, any_of(), close]))
    with_name = concat([named, any_of(), repeated, inner])
    return concat([outer, alternation([EPSILON, with_name])])


_YEAR = "[0-9]{4}"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_OFFSET = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_CLOCK = f"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?{_OFFSET}"
# A leap second is 23:59:60 UTC; with another offset its validity would need arithmetic, so only Z spells it.
_LEAP_SECOND = "23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00)"
_TIME = f"(?:{_CLOCK}|{_LEAP_SECOND})"
_DATE_TIME = f"(?:{_DATE}[Tt]{_CLOCK}|{_YEAR}-(?:06-30|12-31)[Tt]{_LEAP_SECOND})"
_DURATION_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:[0-9]+W|{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME})"


def _label(longest: int) -> str:
    """A label that does not start with `xn--`: whether such a one is valid takes decoding it."""
    end, middle = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    other_start = f"(?:[A-WYZa-wyz0-9]{middle}|[Xx][A-MO-Za-mo-z0-9-])"
    start = f"(?:{other_start}{middle}{{2}}|[Xx][Nn](?:{end}{middle}|-{end}))"
    return f"(?:{end}(?:{middle}{{0,2}}{end})?|{start}{middle}{{0,{longest - 5}}}{end})"


_LABEL = _label(63)
# 253 characters at most in all. Counting them beside the labels needs 16,000 states, so two shapes that stay below
# the limit are allowed: up to three labels of 63, or up to seven of 31.
_HOSTNAME = f"(?:{_LABEL}(?:\\.{_LABEL}){{0,2}}|{_label(31)}(?:\\.{_label(31)}){{0,6}})"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = f"{_OCTET}(?:\\.{_OCTET}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6_ENDS = (*(f"(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)), _H16, "")
_IPV6_SHORT = (f"(?:(?:{_H16}:){{0,{n}}}{_H16})?::{end}" for n, end in enumerate(_IPV6_ENDS))
_IPV6 = f"(?:{'|'.join([f'(?:{_H16}:){{6}}{_LS32}', f'::(?:{_H16}:){{5}}{_LS32}', *_IPV6_SHORT])})"

_ATEXT = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
# The mail RFCs put no limit on a label: it is the DNS that does, for `hostname`.
_SUB_DOMAIN = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EMAIL = f"{_ATEXT}+(?:\\.{_ATEXT}+)*@{_SUB_DOMAIN}(?:\\.{_SUB_DOMAIN})*"

_UNRESERVED = "A-Za-z0-9._~-"
_SUB = "!$&'()*+,;="
_PCT = "%[0-9A-Fa-f]{2}"


def _uri_parts(extra: str) -> tuple[str, str]:
    """(URI, relative reference) by RFC 3986; `extra` adds characters to `unreserved`, for IRIs (RFC 3987)."""
    unreserved = _UNRESERVED[:-1] + extra + "-"
    pchar = f"(?:[{_SUB}:@{unreserved}]|{_PCT})"
    nc = f"(?:[{_SUB}@{unreserved}]|{_PCT})+"
    userinfo = f"(?:[{_SUB}:{unreserved}]|{_PCT})*@"
    reg_name = f"(?:[{_SUB}{unreserved}]|{_PCT})*"
    ip_literal = f"\\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\\.[{_SUB}:{unreserved}]+)\\]"
    authority = f"(?:{userinfo})?(?:{ip_literal}|{reg_name})(?::[0-9]*)?"
    abempty = f"(?:/{pchar}*)*"
    rootless = f"{pchar}+(?:/{pchar}*)*"
    tail = f"(?:\\?(?:{pchar}|[/?])*)?(?:#(?:{pchar}|[/?])*)?"
    hier = f"(?://{authority}{abempty}|/(?:{rootless})?|{rootless})?"
    uri = f"[A-Za-z][A-Za-z0-9+.-]*:{hier}{tail}"
    relative = f"(?://{authority}{abempty}|/(?:{rootless})?|{nc}(?:/{pchar}*)*)?{tail}"
    return uri, relative


_IRI_EXTRA = "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}"
_URI, _RELATIVE = _uri_parts("")
_IRI, _IRI_RELATIVE = _uri_parts(_IRI_EXTRA)
_POINTER = "(?:/(?:[^/~]|~[01])*)*"
_VARNAME = f"(?:[A-Za-z0-9_]|{_PCT})(?:\\.?(?:[A-Za-z0-9_]|{_PCT}))*"
# Excluded from RFC 6570's `literals` above ASCII: controls, noncharacters, specials, tags.
_NO_LITERAL = "\\u007f-\\u009f\\ufdd0-\\ufdef\\ufff0-\\uffff\\u{e0000}-\\u{e0fff}" + "".join(
    f"\\u{{{plane:x}fffe}}\\u{{{plane:x}ffff}}" for plane in range(1, 17)
)
_VARSPEC = f"{_VARNAME}(?::[1-9][0-9]{{0,3}}|\\*)?"

_PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": _DATE_TIME,
    "duration": _DURATION,
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": f"(?:{_URI}|{_RELATIVE})",
    "iri": _IRI,
    "iri-reference": f"(?:{_IRI}|{_IRI_RELATIVE})",
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "uri-template": (
        f"(?:[^\\u0000- \"'%<>\\\\^`{{|}}{_NO_LITERAL}]|{_PCT}|\\{{[+#./;?&=,!@|]?{_VARSPEC}(?:,{_VARSPEC})*\\}})*"
    ),
    "base64": "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
}


FORMATS = (*_PATTERNS, "regex")


@lru_cache(maxsize=32)
def format_regex(name: str) -> Regex:
    """The expression whose words are the strings of a format in `FORMATS`."""
    return regex_language() if name == "regex" else full_regex(_PATTERNS[name])


SHORTEST: Final = 40
"""The least upper bound that leaves room for all parts."""
LARGEST_LOW: Final = 4
_SCHEME: Final = 10
_HOST: Final = 255
_PORT: Final = 5
_FRAGMENT: Final = 64
_ESCAPES_FROM: Final = 1_000
_NAMED: Final = "-._~!$&'()*+,;=a-zA-Z0-9"
_IN_PATH: Final = f"{_NAMED}:@"
_PATH: Final = f"{_IN_PATH}/"
_QUERY: Final = f"{_PATH}?"


def bounded_uri(form: PlainText, high: int) -> Expr:
    """URIs (RFC 3986) of LARGEST_LOW to `high` characters at most, which is SHORTEST or more, then the form's tail. An
    automaton would need 180 states for each character, so each part has a bound of its own: narrower than the set,
    never wider. IP literals and user names are left out, and escapes by percent below 1,000 characters."""
    host, fragment = min(_HOST, high * 3 // 10), min(_FRAGMENT, high // 16)
    # The marks are `://`, `:` of the port, `/`, `?` and `#`.
    left = high - _SCHEME - host - _PORT - fragment - 7
    with_escapes = high >= _ESCAPES_FROM
    units = left // 3 if with_escapes else left
    path = units * 3 // 5

    def some(chars: str, most: int) -> str:
        """Characters, or escapes of three characters."""
        unit = f"(?:[{chars}]|%[0-9a-fA-F][0-9a-fA-F])" if with_escapes else f"[{chars}]"
        return f"{unit}{{0,{most}}}"

    with_host = f"//[{_NAMED}]{{0,{host}}}(?::[0-9]{{0,{_PORT}}})?(?:/{some(_PATH, path - 1)})?"
    # Two characters at least after the scheme, as with a host.
    without = f"[{_IN_PATH}][{_IN_PATH}]{some(_PATH, path - 2)}"
    scheme = f"[a-zA-Z][a-zA-Z0-9+.-]{{0,{_SCHEME - 1}}}:"
    end = f"(?:\\?{some(_QUERY, units - path)})?(?:#[{_QUERY}]{{0,{fragment}}})?"
    return sequence([structure_expr(parse_regex(f"{scheme}(?:{with_host}|{without}){end}"), form), form.tail])

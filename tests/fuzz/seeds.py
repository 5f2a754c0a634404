"""Valid inputs, from which the fuzzed ones are made."""

from __future__ import annotations

import json
from typing import Any, Final

from PIL import Image

from jan_serve.ipc import channel
from jan_serve.ipc.messages import Accepted, Chunk, EmbedRequest, Step, TokenizeRequest
from jan_serve.resources import builtin_model
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.supervisor.kv_transfer.peer_connection import Fetch, Found, Refused, encode
from tests.support.media.pictures import data_url, encoded, picture
from tests.support.media.sounds import flac, mp3, tone, wav


def _pictures() -> tuple[bytes, ...]:
    drawn = Image.effect_mandelbrot((40, 30), (-2, -1, 1, 1), 20)
    frames = [Image.new("RGB", (12, 9), (number * 40, 0, 0)) for number in range(4)]
    alpha = Image.new("RGBA", (9, 9), (1, 2, 3, 90))
    return (
        encoded(drawn), encoded(drawn.convert("1")), encoded(drawn.convert("P")), encoded(drawn.convert("I;16")),
        encoded(alpha), encoded(drawn, "JPEG", quality=40), encoded(drawn, "JPEG", progressive=True),
        encoded(drawn.convert("CMYK"), "JPEG"), encoded(drawn, "GIF"), encoded(drawn, "BMP"),
        encoded(drawn.convert("RGB"), "WEBP"), encoded(alpha, "WEBP", lossless=True),
        encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]),
    )  # fmt: skip


IMAGES: Final = _pictures()

_ID3: Final = b"ID3\x04\x00\x00\x00\x00\x00\x0a" + bytes(10)
SOUNDS: Final = (
    wav(tone(0.1)), wav(tone(0.1), encoding=3, channels=2, rate=44_100), wav(tone(0.05), claimed=0xFFFF_FFFF),
    mp3(6), mp3(4, tag=_ID3), flac(tone(0.3)), flac(tone(0.05), claimed=0),
)  # fmt: skip

SCHEMAS: Final[tuple[Any, ...]] = (
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
     "required": ["name"], "additionalProperties": False},
    {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "maxItems": 4, "$defs": {"node": {
        "type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": ["number", "null"]}}}}},
    {"oneOf": [{"const": "a"}, {"enum": [1, 2.5, None, "x", [1], {"a": 1}]}, {"type": "boolean"}]},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]{2,5}-\\d+$"}, {"type": "string", "format": "date-time"}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 70}}},
               {"required": ["a"]}, {"not": {"required": ["b"]}}]},
    {"type": "object", "patternProperties": {"^x_": {"type": "number", "multipleOf": 0.5}},
     "propertyNames": {"maxLength": 12}, "minProperties": 1, "maxProperties": 3},
    {"type": "number", "exclusiveMinimum": -1.5, "maximum": 1e10},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
    {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]},
     "properties": {"kind": {"enum": ["a", "b"]}, "x": {}, "y": True}, "type": "object"},
    {"type": "array", "contains": {"const": 1}, "minContains": 1, "uniqueItems": True, "items": {"enum": [1, 2, 3]}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/a", "$anchor": "a",
     "$dynamicRef": "#a", "unevaluatedProperties": False, "dependentRequired": {"a": ["b"]}, "type": "object",
     "properties": {"a": {"type": "string", "format": "uuid"}, "b": {"type": "string", "format": "ipv6"}}},
)  # fmt: skip

PATTERNS: Final = (
    r"[a-z]{2,5}-\d+", r"(?:foo|bar)*baz?", r"^(\+\d{1,3}[- ]?)?\(?\d{3}\)?[- ]?\d{3}-\d{4}$", r"[^\x00-\x1f\"\\]+",
    r"(?i)yes|no", r"\p{L}+\s\p{Nd}{2}", r"(a|b(c|d(e|f)))+?", r"(?=[A-Z])[A-Za-z]{3,}", r"\bword\b", r".{0,40}x{2,}",
    r"[[:alpha:]_][\w.-]*@[\w-]+(\.[a-z]{2,})+", r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])",
)  # fmt: skip

GRAMMARS: Final = (
    'root ::= "a" | "b" item+\nitem ::= [0-9]{1,3} ","? ws\nws ::= [ \\t\\n]*\n',
    'root ::= "{" pair ("," pair)* "}"\npair ::= "\\"" [^"\\\\]+ "\\":" value\nvalue ::= "true" | "null" | root\n',
    'root ::= (line "\\n")* # a comment\nline ::= . [^\\x00-\\x1F]* | <think> [a-zé-ü]{,9}\n',
    'root  ::= term ("+" term){0,5}\nterm  ::= [1-9] [0-9]* | "(" root ")"\n',
)

TEMPLATES: Final = (
    read_gguf_header(path).text("tokenizer.chat_template") or ""
    if (path := builtin_model()) is not None
    else "",
    "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}",
    "{%- macro show(x, n=2) -%}{{ x | tojson(indent=n) }}{%- endmacro -%}{{ bos_token }}"
    "{%- for m in messages if m.role != 'tool' -%}{{ loop.index0 }}{{ show(m) }}{%- endfor -%}",
    "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% set ns.n = ns.n + m.content | length %}{% endfor %}"
    "{{ ns.n }}{{ strftime_now('%Y') }}{{ raise_exception('no') if ns.n > 999 }}",
)
KWARGS_TEMPLATE: Final = (
    "{{ date | upper }}{% if enable_thinking and not builtin_tools %}{{ level * 2 }}{% else %}{{ level ~ date }}"
    "{% endif %}"
    "{% for key, value in options | dictsort %}{{ key }}{{ value | tojson }}{% for x in value %}{{ x }}{% endfor %}"
    "{% endfor %}{{ date[:level] }}{{ options.a.b.c }}{{ '%s' | format(date) }}{{ options | join(date) }}"
)
"""A template that uses what `chat_template_kwargs` give it."""
KWARGS: Final[dict[str, Any]] = {
    "enable_thinking": True, "date": "today", "level": 3, "builtin_tools": [], "options": {"a": {"b": {"c": "x"}}},
}  # fmt: skip
MESSAGES: Final = (
    ("system", "Be brief."),
    ("user", "Hello!"),
    ("assistant", "Hi."),
    ("user", "What is 2 + 2?"),
)

FRAMES: Final = (
    *(
        frame[4:]
        for frame in (
            channel.EVENTS.encode(Step((Accepted(1, 3), Chunk(0, "text", id=1)))),
            channel.REQUESTS.encode(
                TokenizeRequest(id=3, text="some text", add_special=True, parse_special=False)
            ),
            channel.REQUESTS.encode(EmbedRequest(id=4, inputs=("a", (1, 2, 3)))),
        )
    ),
    *(encode(message) for message in (Fetch(3), Found(70_000), Refused("no_state", {"message": "gone"}))),
)

_TOOL: Final[Any] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": SCHEMAS[0]},
}
_IMAGE: Final[Any] = {"type": "image_url", "image_url": {"url": data_url(picture())}}
_CHAT: Final[Any] = [
    {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "done"},
]  # fmt: skip
_SAMPLING: Final[dict[str, Any]] = {
    "temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["x"], "max_tokens": 4, "n": 1, "logit_bias": {"5": 1},
}  # fmt: skip
BODIES: Final[tuple[tuple[str, Any], ...]] = (
    ("/v1/chat/completions", {"model": "fake", "messages": _CHAT, "tools": [_TOOL], **_SAMPLING, "stream": True,
                              "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [_IMAGE]}], "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMAS[2], "strict": True}}}),
    ("/v1/completions", {"prompt": ["a", "b"], **_SAMPLING, "echo": True, "logprobs": 2, "suffix": None}),
    ("/v1/responses", {"input": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "name": "f",
                       "parameters": SCHEMAS[0]}], "text": {"format": {"type": "json_object"}}, "stream": True}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
    ("/v1/messages", {"model": "fake", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}],
        "tools": [{"name": "f", "input_schema": SCHEMAS[0]}], "tool_choice": {"type": "auto"}, "thinking": {
            "type": "enabled", "budget_tokens": 1024}, "stream": True}),
    ("/v1/messages/count_tokens", {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}),
    ("/api/chat", {"model": "fake", "messages": [{"role": "user", "content": "hi", "images": list[str]()}],
                   "format": SCHEMAS[0], "options": {"num_ctx": 512, "stop": ["x"]},
                   "keep_alive": "5m", "think": False, "tools": [_TOOL]}),
    ("/api/generate", {"model": "fake", "prompt": "hi", "raw": True, "stream": False}),
    ("/api/embed", {"model": "fake", "input": ["a"]}),
    ("/generate", {"inputs": "hi", "parameters": {"max_new_tokens": 3, "details": True, "grammar": {
        "type": "json", "value": SCHEMAS[0]}, "stop": ["x"], "top_n_tokens": 2}}),
    ("/tgi/v1/chat/completions", {"messages": _CHAT[:2], "max_tokens": 3}),
    ("/lmdeploy/v1/chat/completions", {"model": "fake", "messages": _CHAT[:2], "top_k": 4, "min_p": 0.1}),
    ("/lmdeploy/generate", {"prompt": "hi", "max_tokens": 3, "return_logprob": True}),
    ("/tokenize", {"inputs": "hi"}), ("/extras/tokenize", {"input": "hi"}),
    ("/infill", {"input_prefix": "a", "input_extra": [{"filename": "f", "text": "t"}]}),
    ("/apply-template", {"messages": _CHAT[:2], "chat_template_kwargs": {"a": 1}}),
)  # fmt: skip


def _request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


_BODY: Final = json.dumps({"prompt": "hi", "max_tokens": 2}).encode()
_JSON: Final = "Content-Type: application/json"
REQUESTS: Final = (
    _request("GET", "/health", "Connection: close"),
    _request("GET", "/v1/models?limit=1", "Authorization: Bearer x", "Accept: */*", "Accept-Encoding: gzip"),
    _request("POST", "/v1/completions", _JSON, f"Content-Length: {len(_BODY)}", body=_BODY),
    _request("POST", "/v1/completions", _JSON, "Transfer-Encoding: chunked",
             body=b"5;ext=1\r\n" + _BODY[:5] + b"\r\n%x\r\n" % (len(_BODY) - 5) + _BODY[5:] + b"\r\n0\r\nX: y\r\n\r\n"),
    _request("GET", "/health") * 5 + _request("HEAD", "/health", "Connection: close"),
    _request("OPTIONS", "*", "Origin: http://localhost:3000", "Access-Control-Request-Method: POST"),
    _request("POST", "/api/blobs/sha256:0", "Expect: 100-continue", "Content-Length: 3", body=b"abc"),
    _request("GET", "/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /health\r\n\r\n",
)  # fmt: skip

FORM_TYPE: Final = "multipart/form-data; boundary=edge"


def _form(fields: dict[str, bytes], *headers: str) -> bytes:
    """headers: of each part, beside its name."""
    parts = (
        "\r\n".join(["--edge", f'Content-Disposition: form-data; name="{name}"', *headers, "", ""]).encode()
        + data
        for name, data in fields.items()
    )
    return b"\r\n".join((*parts, b"--edge--\r\n"))


FORMS: Final = (
    _form({"model": b"fake", "file": SOUNDS[2], "language": b"en", "temperature": b"0.5"}),
    _form({"response_format": b"verbose_json", "timestamp_granularities[]": b"word", "file": SOUNDS[3]}),
    _form({"file": SOUNDS[5], "prompt": "Grüße".encode(), "stream": b"true"}, "Content-Type: audio/flac"),
)
HEALTH: Final = _request("GET", "/health", "Connection: close")
STATUSES: Final = frozenset(
    "100 200 204 400 401 403 404 405 406 408 409 411 413 414 415 417 422 426 429 431 501 503 505 507".split()
)

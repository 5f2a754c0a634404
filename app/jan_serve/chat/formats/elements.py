"""Calls as elements with an element for each argument: DeepSeek V3.2 and V4, GLM 4.5 to 4.7 (with Laguna, Spark and
Ling 3), Hunyuan 3, Kimi K3, MiniCPM 5, MiniMax M2, Qwen3-Coder (with Qwen3.5, Nemotron 3 and Step 3.5) and Seed-OSS.

Source: the models' chat templates. Qwen3-Coder sometimes omits the outer tag, so a call also begins without it. MiniCPM
puts text with line breaks or brackets in a CDATA section. The prompt of Kimi K3 opens the thought, and a thought may
end without its closing tag.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.call_layout import CallLayout, TaggedArguments, parts
from jan_serve.chat.chat_format import ChatFormat, Signature, Thought
from jan_serve.chat.formats.marked_json import CLOSE, OBJECTS, OPEN
from jan_serve.chat.parsers.marked_calls import MarkerParser
from jan_serve.chat.parsers.tagged_calls import TaggedCalls

_THINK: Final = ("<think>", "</think>")
_FUNCTION: Final = "<function="


def _function_elements(tag: str) -> TaggedCalls:
    return TaggedCalls(
        call_opens=(_FUNCTION,),
        argument_open="<parameter=",
        key_end=">",
        value_open="",
        value_close="</parameter>",
        call_close="</function>",
        closers=(f"</{tag}>",),
        or_json=OBJECTS if tag == "tool_call" else None,
    )


QWEN3_CODER = ChatFormat(
    name="qwen3-coder",
    signature=Signature(all_of=(_FUNCTION, "<parameter=", OPEN)),
    parse=MarkerParser(_function_elements("tool_call"), (OPEN, _FUNCTION)),
    calls=CallLayout(
        call=parts(f"{OPEN}\n<function=$NAME>\n$ARGUMENTS</function>\n{CLOSE}"),
        separator="\n",
        arguments=TaggedArguments(parts("<parameter=$KEY>\n$VALUE\n</parameter>\n")),
        triggers=(OPEN, _FUNCTION),
    ),
    special_tokens=(OPEN, CLOSE, *_THINK),
)

_SEED = ("<seed:tool_call>", "</seed:tool_call>")

SEED_OSS = ChatFormat(
    name="seed-oss",
    signature=Signature(all_of=("seed:tool_call",)),
    parse=MarkerParser(_function_elements("seed:tool_call"), (_SEED[0], _FUNCTION)),
    calls=CallLayout(
        call=parts(f"{_SEED[0]}\n<function=$NAME>\n$ARGUMENTS</function>\n{_SEED[1]}"),
        separator="\n",
        arguments=TaggedArguments(parts("<parameter=$KEY>$VALUE</parameter>\n")),
        triggers=(_SEED[0], _FUNCTION),
    ),
    thought=Thought(opens=("<seed:think>",), closes=("</seed:think>",)),
    special_tokens=(*_SEED, "<seed:think>", "</seed:think>"),
)

_CDATA = ("<![CDATA[", "]]>")

MINICPM5 = ChatFormat(
    name="minicpm5",
    signature=Signature(all_of=('<function name="', '<param name="')),
    parse=MarkerParser(
        TaggedCalls(
            call_opens=('<function name="',),
            argument_open='<param name="',
            value_close="</param>",
            call_close="</function>",
            section=_CDATA,
        ),
        ('<function name="',),
    ),
    calls=CallLayout(
        call=parts('<function name="$NAME">$ARGUMENTS</function>'),
        separator="\n",
        arguments=TaggedArguments(parts('<param name="$KEY">$VALUE</param>'), section=_CDATA),
        triggers=('<function name="',),
    ),
)


def _keys_and_values(suffix: str = "", name_end: str = "") -> TaggedCalls:
    return TaggedCalls(
        name_end=name_end,
        argument_open=f"<arg_key{suffix}>",
        key_end=f"</arg_key{suffix}>",
        value_open=f"<arg_value{suffix}>",
        value_close=f"</arg_value{suffix}>",
        call_close=f"</tool_call{suffix}>",
        or_json=None if suffix else OBJECTS,
    )


def _glm(name: str, line: str, *closings: str) -> ChatFormat:
    """line: the break between tags and calls. closings: what the template has between a key and its value."""
    return ChatFormat(
        name=name,
        signature=Signature(all_of=("<arg_key>",), any_of=closings),
        parse=MarkerParser(_keys_and_values(), (OPEN,)),
        calls=CallLayout(
            call=(*parts(OPEN + "$NAME"), line, *parts("$ARGUMENTS" + CLOSE)),
            separator=line,
            arguments=TaggedArguments(
                parts(f"<arg_key>$KEY</arg_key>{line}<arg_value>$VALUE</arg_value>{line}")
            ),
            triggers=(OPEN,),
        ),
        special_tokens=(OPEN, CLOSE, *_THINK),
    )


GLM_4_5 = _glm("glm-4.5", "\n")
GLM_4_7 = _glm("glm-4.7", "", "</arg_key><arg_value>", '</arg_key>" -}}')

_HY = ":opensource"
_HY_CALLS, _HY_CALL = f"<tool_calls{_HY}>", f"<tool_call{_HY}>"

HUNYUAN3 = ChatFormat(
    name="hunyuan3",
    signature=Signature(all_of=("<arg_key{}>", "HYTK")),
    parse=MarkerParser(
        _keys_and_values(_HY, f"<tool_sep{_HY}>"), (_HY_CALL,), ignored=(_HY_CALLS, f"</tool_calls{_HY}>")
    ),
    calls=CallLayout(
        opening=_HY_CALLS + "\n",
        call=parts(f"{_HY_CALL}$NAME<tool_sep{_HY}>\n$ARGUMENTS</tool_call{_HY}>\n"),
        closing=f"</tool_calls{_HY}>",
        arguments=TaggedArguments(
            parts(f"<arg_key{_HY}>$KEY</arg_key{_HY}>\n<arg_value{_HY}>$VALUE</arg_value{_HY}>\n")
        ),
        triggers=(_HY_CALLS,),
    ),
    thought=Thought(opens=(f"<think{_HY}>",), closes=(f"</think{_HY}>",), ends=(_HY_CALLS, _HY_CALL)),
    special_tokens=tuple(
        f"<{tag}{_HY}>"
        for element in ("think", "tool_calls", "tool_call", "arg_key", "arg_value", "tool_sep")
        for tag in (element, f"/{element}")
    ),
)


def invocations(prefix: str, *closers: str) -> TaggedCalls:
    """`<invoke name="NAME">`, with `<parameter name="KEY">` for each argument; the names of elements have a prefix."""
    return TaggedCalls(
        call_opens=(f'<{prefix}invoke name="',),
        argument_open=f'<{prefix}parameter name="',
        value_close=f"</{prefix}parameter>",
        call_close=f"</{prefix}invoke>",
        closers=closers,
    )


_M2 = ("<minimax:tool_call>", "</minimax:tool_call>")

MINIMAX_M2 = ChatFormat(
    name="minimax-m2",
    signature=Signature(all_of=_M2[:1]),
    parse=MarkerParser(invocations("", _M2[1]), _M2[:1]),
    calls=CallLayout(
        opening=_M2[0] + "\n",
        call=parts('<invoke name="$NAME">\n$ARGUMENTS</invoke>\n'),
        closing=_M2[1],
        arguments=TaggedArguments(parts('<parameter name="$KEY">$VALUE</parameter>\n')),
        triggers=_M2[:1],
    ),
    thought=Thought(ends=_M2[:1]),
    special_tokens=(*_M2, *_THINK),
)

_BAR: Final = "\N{FULLWIDTH VERTICAL LINE}"
_DSML: Final = f"{_BAR}DSML{_BAR}"
_BLOCKS: Final = ("function_calls", "tool_calls")


def _deepseek(name: str, block: str, none_of: tuple[str, ...]) -> ChatFormat:
    # Models write the other version's block too, and calls without one.
    openers = (*(f"<{_DSML}{each}>" for each in _BLOCKS), f'<{_DSML}invoke name="')
    closers = (f"</{_DSML}{each}>" for each in _BLOCKS)
    argument = f'<{_DSML}parameter name="$KEY" string="$IS_STRING">$VALUE</{_DSML}parameter>\n'
    return ChatFormat(
        name=name,
        signature=Signature(all_of=("DSML", block), none_of=none_of),
        parse=MarkerParser(invocations(_DSML, *closers), openers),
        calls=CallLayout(
            opening=f"<{_DSML}{block}>\n",
            call=parts(f'<{_DSML}invoke name="$NAME">\n$ARGUMENTS</{_DSML}invoke>\n'),
            closing=f"</{_DSML}{block}>",
            arguments=TaggedArguments(parts(argument)),
            triggers=(f"<{_DSML}{block}>",),
        ),
        thought=Thought(ends=openers),
        special_tokens=(_DSML, *_THINK),
    )


DEEPSEEK_V3_2 = _deepseek("deepseek-v3.2", "function_calls", none_of=())
DEEPSEEK_V4 = _deepseek("deepseek-v4", "tool_calls", none_of=("function_calls>",))


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


KIMI_K3 = ChatFormat(
    name="kimi-k3",
    signature=Signature(all_of=("<|open|>", "<|close|>", "<|sep|>")),
    parse=MarkerParser(
        TaggedCalls(
            call_opens=('<|open|>call tool="',),
            name_end="<|sep|>",
            argument_open='<|open|>argument key="',
            value_open="<|sep|>",
            value_close=_close("argument"),
            call_close=_close("call"),
            closers=(_close("tools"),),
        ),
        (_open("tools"),),
        ignored=(_open("response"), _close("response"), _close("message"), "<|end_of_msg|>"),
    ),
    calls=CallLayout(
        opening=_open("tools"),
        call=parts(_open('call tool="$NAME" index="$INDEX"') + "$ARGUMENTS" + _close("call")),
        closing=_close("tools"),
        arguments=TaggedArguments(
            parts(_open('argument key="$KEY" type="$JSON_TYPE"') + "$VALUE" + _close("argument"))
        ),
        first_index=1,
        triggers=(_open("tools"),),
    ),
    text_opens=_open("response"),
    thought=Thought(
        opens=(_open("think"),), closes=(_close("think"),), ends=(_open("response"), _open("tools"))
    ),
    special_tokens=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)

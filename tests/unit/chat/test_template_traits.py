"""What a template takes and shows, found by rendering it."""

from __future__ import annotations

import pytest

from jan_serve.chat.template_traits import TemplateTraits, traits_of
from jan_serve.errors import TemplateError

TURNS = "{% for m in messages %}{{ m.content or '' }}"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
END = "{% endfor %}"
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
)
ALTERNATE = (
    "{% set first = 1 if messages[0].role == 'system' else 0 %}{% set ns = namespace(n=0) %}"
    "{% for m in messages[first:] %}{% if m.role != 'tool' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
)

TEMPLATES: dict[str, tuple[str, TemplateTraits]] = {
    "arguments as JSON": (
        TURNS + CALLS + "{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(),
    ),
    "arguments pasted": (
        TURNS + CALLS + "{{ c.function.arguments }}" + END + END,
        TemplateTraits(object_arguments=False),
    ),
    "arguments in a notation of its own, and text as it is": (
        TURNS + CALLS + "{% if c.function.arguments is string %}{ {{- c.function.arguments -}} }{% else %}"
        "{% for k, v in c.function.arguments | items %}{{ k }}:{{ v }}{% endfor %}{% endif %}" + END + END,
        TemplateTraits(),
    ),
    "arguments as JSON, text as it is": (
        TURNS + CALLS + "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
        "{{ c.function.arguments | tojson(separators=(',', ':')) }}{% endif %}" + END + END,
        TemplateTraits(object_arguments=False),
    ),
    "text only": (
        TURNS + CALLS + "{{ 'args: ' + c.function.arguments }}" + END + END,
        TemplateTraits(object_arguments=False),
    ),
    "arguments one by one": (
        TURNS + CALLS + "{% for k, v in c.function.arguments | items %}{{ v }}" + END + END + END,
        TemplateTraits(),
    ),
    "no calls": (TURNS + END, TemplateTraits(calls=False, parallel_calls=False)),
    "one call only": (
        TURNS + "{% if m.tool_calls %}{% set c = m.tool_calls[0].function %}{{ c.name }}"
        "{{ c.arguments | tojson }}{% endif %}" + END,
        TemplateTraits(parallel_calls=False),
    ),
    "no system message": (
        NO_SYSTEM + TURNS + CALLS + "{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(system_role=False, late_system=False),
    ),
    "one system message at the start": (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(late_system=False),
    ),
    "later system messages left out": (
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.content or '' }}{% endif %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(late_system=False),
    ),
    "two efforts": (
        "{% if reasoning_effort is defined and reasoning_effort not in ['none', 'high'] %}"
        "{{ raise_exception('must be either none or high') }}{% endif %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(efforts=("none", "high")),
    ),
    "an effort with a name of its own": (
        "{% if reasoning_effort == 'max' %}Think.{% endif %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(efforts=("none", "low", "medium", "high", "max")),
    ),
    "roles that alternate": (
        ALTERNATE + TURNS + CALLS + "{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(late_system=False, repeated_turns=False),
    ),
    "tools that must be a list": (
        "{{ tools | length }}" + TURNS + CALLS + "{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(no_tools=False),
    ),
    "descriptions of all": (
        "{% for t in tools or [] %}{{ t.function.description | trim + '.' }}"
        "{% for n, p in t.function.parameters.properties | items %}{{ '-' + p.description }}{% endfor %}{% endfor %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(descriptions=True),
    ),
    "calls instead of content": (
        "{% for m in messages %}{% if m.content is none %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
        + END,
        TemplateTraits(null_content=True, call_opening=""),
    ),
    "calls without the text beside them": (
        "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}[CALLS]{% else %}{{ m.content or '' }}{% endif %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(call_opening="[CALLS]"),
    ),
    "ids of nine characters": (
        TURNS
        + "{% if m.tool_call_id and m.tool_call_id | length != 9 %}{{ raise_exception('ids') }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}"
        "{{ c.function.name }}{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(short_ids=True),
    ),
    "the user's question first": (
        "{% if tools and messages | selectattr('role', 'equalto', 'user') | list == [] %}"
        "{{ raise_exception('no question') }}{% endif %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(any_start=False),
    ),
    "no empty answers": (
        "{% for m in messages %}{% if m.role == 'assistant' and not m.content and not m.tool_calls %}"
        "{{ raise_exception('empty') }}{% endif %}{{ m.content or '' }}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(empty_turns=False),
    ),
    "results of its own calls only": (
        "{% set ns = namespace(ids=[]) %}{% for m in messages %}"
        "{% for c in m.tool_calls or [] %}{% set ns.ids = ns.ids + [c.id] %}"
        "{{ c.function.name }}{{ c.function.arguments | tojson }}"
        + END
        + "{% if m.role != 'tool' or m.tool_call_id in ns.ids %}{{ m.content or '' }}{% endif %}"
        + END,
        TemplateTraits(call_opening="", orphan_results=False),
    ),
    "no results of unknown calls in a turn": (
        "{% set ns = namespace(ids=[]) %}{% for m in messages %}"
        "{% if m.role == 'assistant' %}{% set ns.ids = [] %}{% endif %}"
        "{% for c in m.tool_calls or [] %}{% set ns.ids = ns.ids + [c.id] %}"
        "{{ m.content or '' }}{{ c.function.name }}{{ c.function.arguments | tojson }}"
        + END
        + "{% if not m.tool_calls and (m.role != 'tool' or not ns.ids or m.tool_call_id in ns.ids) %}"
        "{{ m.content or '' }}{% endif %}" + END,
        TemplateTraits(orphan_results=False),
    ),
    "no calls at the end": (
        TURNS
        + "{% if not loop.last %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + "{% endif %}"
        + END,
        TemplateTraits(calls_last=False),
    ),
    "the text beside the first calls only": (
        "{% set ns = namespace(called=false) %}{% for m in messages %}"
        "{% if not (m.tool_calls and ns.called) %}{{ m.content or '' }}{% endif %}"
        "{% if m.tool_calls %}{% set ns.called = true %}{% endif %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(call_opening=""),
    ),
    "a system message before the last question only": (
        "{% for m in messages %}{% if m.role == 'user' and loop.last and messages[0].role == 'system' %}"
        "{{ messages[0].content }}{% endif %}{% if m.role != 'system' or messages[-1].role == 'system' %}"
        "{{ m.content or '' }}{% endif %}" + CALLS + "{{ c.function.arguments | tojson }}" + END + END,
        TemplateTraits(late_system=False, system_before_results=False),
    ),
    "the user not after results": (
        "{% for m in messages %}{% if m.role == 'user' and loop.previtem and loop.previtem.role == 'tool' %}"
        "{{ raise_exception('not after a result') }}{% endif %}{{ m.content or '' }}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(repeated_turns=False),
    ),
    "types of one word": (
        "{% for t in tools or [] %}{% for n, p in t.function.parameters.properties | items %}"
        "{{ p.type + ': ' + (p.additionalProperties.type if p.type == 'object' else '') }}{% endfor %}{% endfor %}"
        + TURNS
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(simple_types=True),
    ),
    "content in parts": (
        "{% for m in messages %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}"
        + CALLS
        + "{{ c.function.arguments | tojson }}"
        + END
        + END,
        TemplateTraits(list_content=True),
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_traits(name: str) -> None:
    source, expected = TEMPLATES[name]
    assert traits_of(source) == expected


def test_a_template_that_shows_nothing_has_no_calls() -> None:
    traits = traits_of("{{ raise_exception('never') }}")
    assert (traits.calls, traits.parallel_calls, traits.system_role) == (False, False, False)


def test_a_template_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        traits_of("{% if %}")

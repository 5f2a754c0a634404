"""The sandbox of chat templates: what they may do, what they cannot reach, and how they fail."""

from __future__ import annotations

import pytest

from jan_serve.chat import template_sandbox
from jan_serve.chat.template_sandbox import compiled, rendered
from jan_serve.errors import TemplateError


def _no_date(date_format: str) -> str:
    return date_format


def render(source: str) -> str:
    values = {"messages": [{"role": "user", "content": "Hi"}], "strftime_now": _no_date}
    return rendered(compiled(source), values)


def test_lists_may_be_changed_by_the_template() -> None:
    assert render("{% set x = [1] %}{{ x.append(2) or x | join(',') }}") == "1,2"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ ''|attr('__class__') }}",
        "{{ lipsum() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ joiner() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_cannot_reach_python(source: str) -> None:
    """What is not refused outright is undefined, and writes nothing."""
    try:
        text = render(source)
    except TemplateError:
        return
    assert text == ""


def test_the_words_of_raise_exception_reach_the_caller() -> None:
    with pytest.raises(TemplateError, match="no system role, please") as caught:
        render("{{ raise_exception('no system role, please') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if %}",
        "{{ messages[0].content + 1 }}",
        "{{ nobody.knows.this }}",
        "{{ 1 / 0 }}",
        "{% for x in range(10**9) %}{% endfor %}",
        "{{ {'a': messages} | tojson(indent=messages) }}",
        "x" * (template_sandbox.MAX_TEMPLATE_CHARS + 1),
    ],
    ids=["recursion", "parentheses", "syntax", "type", "undefined", "division", "range", "argument", "long"],
)
def test_a_template_that_fails_is_the_requests_error(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ 'a\\ud800' }}", "wrote half of a surrogate pair"),
        ("{{ '\\ud83d' }}{{ '\\ude00' }}", "wrote half of a surrogate pair"),
        ("{{ raise_exception('no \\ud800') }}", r"refused the messages: no \?"),
        ("{{ ({}).x['\\ud800'].y }}", "the chat template failed"),
        ("{{ 1 | no\ud800 }}", "does not compile"),
        ("{{ 'é'.encode('ascii') }}", "failed: UnicodeEncodeError"),
    ],
)
def test_half_of_a_surrogate_pair_is_an_error_that_can_be_written(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words) as caught:
        render(source)
    assert caught.value.message.encode()


def test_the_words_of_raise_exception_are_bounded() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception('no' * 10000) }}")
    assert len(caught.value.message) < 2100


def test_the_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_OUTPUT_CHARS", 100)
    assert len(render("{{ 'a' * 100 }}")) == 100
    with pytest.raises(TemplateError, match="more than 100 characters"):
        render("{% for i in range(1000) %}{{ 'abc' }}{% endfor %}")


def test_a_template_is_compiled_once() -> None:
    assert compiled("{{ 1 }}") is compiled("{{ 1 }}")

"""What a template takes and shows, found by rendering it."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest

from jan_serve.chat.template_sandbox import rendered
from jan_serve.chat.template_traits import TemplateTraits, traits_of
from jan_serve.errors import TemplateError
from tests.support.tables import table

TEMPLATES: dict[str, tuple[str, dict[str, Any]]] = table(__file__, "templates")
"""Each with the traits that are not the default."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_traits(name: str) -> None:
    source, traits = TEMPLATES[name]
    assert traits_of(source) == msgspec.convert(traits, TemplateTraits)


def test_a_template_that_shows_nothing_has_no_calls() -> None:
    traits = traits_of("{{ raise_exception('never') }}")
    assert (traits.calls, traits.parallel_calls, traits.system_role) == (False, False, False)


def test_a_template_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        traits_of("{% if %}")


@pytest.mark.parametrize("number", range(0, 30, 3))
def test_a_lack_of_memory_while_they_are_found_is_not_kept(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, traits = next(iter(TEMPLATES.values()))
    source += f"{{# {number} #}}"  # not in the cache
    calls = count()

    def lacking(template: Any, values: Any) -> str:
        if next(calls) >= number:
            raise TemplateError("too much") from MemoryError()
        return rendered(template, values)

    with monkeypatch.context() as patch:
        patch.setattr("jan_serve.chat.template_traits.rendered", lacking)
        with pytest.raises(TemplateError):
            traits_of(source)
    assert traits_of(source) == msgspec.convert(traits, TemplateTraits)

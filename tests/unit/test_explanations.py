"""Each code that a client can read has a line, and what the lines advise exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jan_serve
from jan_serve.cli.app import COMMANDS
from jan_serve.cli.main import main
from jan_serve.cli.options import setting_options
from jan_serve.resources import explanations


def codes() -> Iterator[str]:
    """Codes of classes of errors, and of calls that make a refusal."""
    for file in Path(jan_serve.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case (
                    ast.ClassDef(keywords=[ast.keyword("code", ast.Constant(str(code)))])
                    | ast.AnnAssign(target=ast.Name("code"), value=ast.Constant(str(code)))
                ):
                    yield code
                case ast.Call(
                    func=ast.Name("http_problem" | "Problem"), args=[_, ast.Constant(str(code)), *_]
                ):
                    yield code
                case ast.Call(func=ast.Name("Problem"), keywords=keywords):
                    for keyword in keywords:
                        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                            yield str(keyword.value.value)
                case _:
                    pass


def test_each_code_of_an_error_is_explained_and_no_other() -> None:
    assert set(explanations()["errors"]) == set(codes())


def test_advice_names_settings_and_commands_that_exist() -> None:
    settings = {option.field for option in setting_options()}
    for words in (*explanations()["errors"].values(), *explanations()["causes"].values()):
        for quoted in (words.meaning + words.advice).split("`")[1::2]:
            command, _, rest = quoted.partition(" ")
            if command == "jan-serve":
                assert rest.split(" ")[0] in COMMANDS, quoted
            elif quoted.replace("_", "").isalpha() and quoted.islower() and "_" in quoted:
                assert quoted in settings, quoted


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["model_not_found"], 0, "jan-serve ls"),
        (["date"], 0, "another date"),
        ([], 0, "context_length_exceeded"),
        (["--json"], 0, '"draining"'),
        (["overloaded", "--json"], 0, '"advice"'),
        (["model_not_fond"], 2, "model_not_found"),
        (["zzz"], 2, "lists the codes"),
    ],
)
def test_the_command(arguments: list[str], status: int, expected: str, capsys: Any) -> None:
    assert main(["explain", *arguments]) == status
    printed = capsys.readouterr()
    assert expected in (printed.out if status == 0 else printed.err)


def test_the_command_shows_no_placeholder(capsys: Any) -> None:
    for code in (*explanations()["errors"], *explanations()["causes"]):
        main(["explain", code])
        main(["explain", code, "--json"])
        text, _, document = capsys.readouterr().out.partition("\n{")
        assert not re.search(r"[{}]", text + document.rstrip().removesuffix("}")), code

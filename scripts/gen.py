"""Writes docs/ settings.md, cli.md, why.md and errors.md from the code. `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import typer.main
from pydantic import BaseModel

from jan_serve.api.activity.recent import KEPT
from jan_serve.cli.app import build_app
from jan_serve.cli.chat.request_options import PARAMETERS
from jan_serve.cli.chat.slash_commands import COMMANDS as SLASH_COMMANDS
from jan_serve.cli.errors import EXIT_STATUSES
from jan_serve.cli.options import setting_options
from jan_serve.config import ModelOptions, ModelSettings, Option
from jan_serve.config.model_settings import LIVE_KEYS, OWN_KEYS, LoraSettings, SamplingSettings
from jan_serve.config.options import bounds
from jan_serve.resources import explanations

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTICE = "<!-- Written by scripts/gen.py from the code. Change it there. -->"


def settings_page() -> str:
    """Every setting in its spellings, in panels."""
    lines = [
        NOTICE,
        "",
        "# Settings",
        "",
        "Each setting is a flag of `jan-serve serve`, an environment variable and a key of the configuration file.",
        "Flags win over the environment, the environment over the file, the file over the defaults.",
        "`jan-serve config` shows the effective values and their sources.",
        "",
        "The file is TOML with these keys at its top level. It is `config.toml` in the platform's configuration folder",
        "(`~/.config/jan-serve` on Linux, `~/Library/Application Support/jan-serve` on macOS,",
        "`%LOCALAPPDATA%\\jan-serve` on Windows), or what `--config FILE` or `JAN_SERVE_CONFIG` names.",
        "Lists are arrays in the file, separated by commas in a variable, and repeated as flags.",
        "A relative folder in the file counts from the folder of the file.",
        "",
    ]
    panels: dict[str, list[Option]] = {}
    for option in setting_options():
        panels.setdefault(option.panel, []).append(option)
    for group, options in panels.items():
        lines += [f"## {group}", ""]
        lines += table(
            ("key", "flag", "variable", "default", "meaning"),
            [
                (
                    code(option.field),
                    " or ".join(code(flag) for flag in option.flag.split("/")),
                    code(option.variable),
                    code(option.default) if option.default not in ("", "by platform") else option.default,
                    option.description + (f" ({option.bounds})" if option.bounds else ""),
                )
                for option in options
            ],
        )
        lines.append("")
    return "\n".join([*lines, *single_models()])


def single_models() -> list[str]:
    """The keys of a model's table in the file."""
    lines = [
        "## Single models",
        "",
        'A table `[models."NAME"]` in the file applies to one model. It takes precedence over the settings',
        "for all models, flags included.",
        "NAME is any full name of the model: as `jan-serve ls` shows it, the file's own name, or `org/repo:QUANT`.",
        "`--chat-template MODEL=...` is `template` of such a table, and wins over it.",
        "",
        "```toml",
        '[models."Qwen3-4B-Q4_K_M"]',
        "n_ctx = 32768",
        'aliases = ["gpt-4o-mini"]',
        "",
        '[models."Qwen3-4B-Q4_K_M".sampling]',
        "temperature = 0.6",
        "",
        '[[models."Qwen3-4B-Q4_K_M".lora]]',
        'name = "sql"',
        'file = "adapters/sql.gguf"',
        "```",
        "",
        "The tables are read again when the file has changed; `jan-serve config check` shows mistakes with their line,",
        "and a running server keeps the old values. A key marked *live* applies from the next request",
        "on. For the others the model is loaded again at its next request, once no other request uses it.",
        "",
    ]
    options = {option.field: option for option in setting_options()}
    own = [*field_rows(ModelSettings, OWN_KEYS)]
    shared = [
        (code(name), "live" if name in LIVE_KEYS else "", options[name].description)
        for name in ModelOptions.model_fields
    ]
    lines += table(("key", "", "meaning"), [*own, *shared])
    for title, kind, text in (
        (
            "`sampling`",
            SamplingSettings,
            "Replace the defaults of each API, if it has such a value. Values in a request win.",
        ),
        (
            "`lora`",
            LoraSettings,
            "Adapters that requests may choose. How: [configuration](configuration.md#lora-adapters).",
        ),
    ):
        rows = [(key, meaning) for key, _, meaning in field_rows(kind, kind.model_fields)]
        lines += ["", f"### {title}", "", text, "", *table(("key", "meaning"), rows)]
    return lines


def field_rows(kind: type[BaseModel], names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Key, whether it is live, and meaning with its bounds."""
    for name in names:
        field = kind.model_fields[name]
        limits = bounds(field.metadata)
        meaning = " ".join(part for part in (field.description, f"({limits})" if limits else "") if part)
        yield code(name), "live" if name in LIVE_KEYS else "", meaning


def cli_page() -> str:
    """Every command with its options, except the settings, which have their own page."""
    root: Any = typer.main.get_command(build_app())
    lines = [NOTICE, "", "# Command line", "", root.help, ""]
    lines += [
        "`jan-serve` without a command is `jan-serve serve`. Results go to standard output, everything else to",
        "standard error. `--json` prints results for programs.",
        "",
        *table(("exit status", "meaning"), [(str(status), text) for status, text in EXIT_STATUSES.items()]),
        "",
    ]
    settings = {option.field for option in setting_options()}
    for path, command in walk(root, "jan-serve"):
        lines += [f"## `{path}`", "", " ".join((command.help or "").split()), ""]
        takes_settings = settings <= {p.name for p in command.params}
        own = [p for p in command.params if not (p.hidden or (takes_settings and p.name in settings))]
        rows = [(spelling(p), p.help or "") for p in own]
        if rows:
            title = "option" if all(p.param_type_name == "option" for p in own) else "argument, option"
            lines += [*table((title, "meaning"), rows), ""]
        if path == "jan-serve run":
            lines += chat_section()
        if takes_settings:
            lines += ["Every setting is a flag too: see [settings](settings.md).", ""]
    return "\n".join(lines)


def chat_section() -> list[str]:
    """The commands and parameters of a chat."""
    commands = {command.usage: command.meaning for command in SLASH_COMMANDS.values()}
    return [
        "In a chat:",
        "",
        *table(("command", "meaning"), [(code(usage), meaning) for usage, meaning in commands.items()]),
        "",
        'Several lines begin and end with `"""`, or end with a backslash, or are joined by Alt-Enter. Ctrl-C stops an',
        "answer; Ctrl-D leaves. The parameters of `/set` and `--set`:",
        "",
        *table(("parameter", "meaning"), [(code(name), meaning) for name, meaning in PARAMETERS.items()]),
        "",
    ]


def why_page() -> str:
    """Every cause that `jan-serve why` names."""

    lines = [
        NOTICE,
        "",
        "# Why was this slow?",
        "",
        "```sh",
        "jan-serve top              # the requests that run and the last that ended; --json for programs",
        "jan-serve top --totals     # requests and tokens of each day, by model and program",
        "jan-serve why              # where the time of the last one went, and what can be done",
        "jan-serve why --slowest    # of the one with the longest wait for its first token",
        "jan-serve why ID           # ID: `x-request-id` of its answer",
        "```",
        "",
        "`GET /extras/requests`, `/extras/totals` and `/extras/why/ID` say the same. The server remembers",
        f"{KEPT} requests: times, counts and hashes, never text. With several keys, each sees its own requests.",
        "A response in the background is one request until it is whole, whether or not its client stays.",
        "",
        "The page's Server tab lists the requests, and each opens into lanes of time and its causes:",
        "",
        "![A request on the page, opened into lanes of time and causes](images/page-why.png)",
        "",
        "`keep_prompts = N` also keeps the rendered prompts of the last N requests, in memory and for their key alone:",
        "`GET /extras/requests/ID/prompt` has the text as the model reads it, and where the cached part of it ends.",
        "",
        "A prompt that begins as an earlier one is read from there on. The server compares each prompt with the",
        "nearest earlier one of its client, tool by tool, line by line of the system text and message by message,",
        "and names the first part that differs.",
        "",
        *explanation_table("causes", "cause"),
        "",
        "Records take 0.15 to 0.25 % of a step of the built-in model: `python -m benchmarks.records` counts it.",
        "",
        "## Traces",
        "",
        "`--otel-endpoint http://localhost:4318` (with `pip install 'jan-serve[otel]'`) sends a trace of each",
        "request to a collector of OpenTelemetry: the request, below it `chat MODEL`, and below that the phases",
        "(`load`, `template`, `compile`, `media`, `growth`, `restart`, `queue`, `reading`, `writing`). Attributes have",
        "the names of the GenAI conventions; no text is among them. The client's `traceparent` is taken, and",
        "`jan-serve proxy` passes it on, with `--otel-endpoint` as a span of its own. A line of a batch is below the",
        "request that made the batch, also after a restart. `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER` and",
        "`OTEL_RESOURCE_ATTRIBUTES` work as the SDK says. A collector that does not answer delays nothing: spans are",
        "lost.",
    ]
    return "\n".join(lines)


def errors_page() -> str:
    """Every code of an error."""
    lines = [
        NOTICE,
        "",
        "# Errors",
        "",
        "Each error has a code, which stays the same, and a message, which names the field and the limit.",
        "`jan-serve explain CODE` prints the line of a code. The statuses of each dialect:",
        "[adr/0007](adr/0007-status-422-and-400.md).",
        "",
        *explanation_table("errors", "meaning"),
    ]
    return "\n".join(lines)


def explanation_table(kind: Literal["errors", "causes"], meaning: str) -> list[str]:
    explained = {name: words.without_values() for name, words in explanations()[kind].items()}
    rows = [(code(name), words.meaning, words.advice) for name, words in explained.items()]
    return table(("code", meaning, "what can be done"), rows)


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command's subcommands, and theirs, with the words that call them."""
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield f"{path} {name}", child
            yield from walk(child, f"{path} {name}")


def spelling(parameter: Any) -> str:
    """An argument's name in usage lines, or all flags of an option."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return code((name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else ""))
    return " ".join(code(flag) for flag in (*parameter.opts, *parameter.secondary_opts))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (columns, ["---"] * len(columns), *rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def code(text: str) -> str:
    """`text` in code type; nothing for nothing."""
    return f"`{text}`" if text else ""


def main(arguments: Sequence[str]) -> int:
    """0 if the documents are written, or with --check if they match the code."""
    stale: list[str] = []
    for name, page in (
        ("settings.md", settings_page()),
        ("cli.md", cli_page()),
        ("why.md", why_page()),
        ("errors.md", errors_page()),
    ):
        path = DOCS / name
        content = page.rstrip("\n") + "\n"
        if path.is_file() and path.read_text(encoding="utf-8") == content:
            continue
        if "--check" in arguments:
            stale.append(name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} does not match the code: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

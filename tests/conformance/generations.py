"""What models write under schemas, judged by jsonschema: `python -m tests.conformance.generations [--count N]`. A
finished answer has to be valid; one that a limit cut off has to be the beginning of something valid. Random weights
write what no model would, so they try more of a grammar than a good model does. Five answers for each schema and order
of properties: of both models greedy and at temperature 1.5, of random weights twice."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for

from jan_serve.core.constraint import PropertyOrder
from jan_serve.errors import JanServeError
from jan_serve.resources import builtin_model
from models.recipe import fixtures
from tests.conformance.suites import SHARED, load_suite
from tests.integration.http.support import CHATS, serving_models
from tests.support.clients.raw_http import post
from tests.unit.constraint.grammars import grammar_in_rules
from tests.unit.constraint.recognizer import Recognizer

MAX_TOKENS = 300
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Written:
    """One answer. problem: why it is wrong; None where it is not. repeats: whether an object has a name twice."""

    name: str
    finished: bool
    problem: str | None
    repeats: bool = False


def generate(
    url: str, name: str, schema: Any, seed: int, temperature: float, order: PropertyOrder
) -> Written:
    """Ask for one answer under the schema and judge it."""
    body = {
        "messages": [{"role": "user", "content": "Answer with JSON, please."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": schema},
            "property_order": order.value,
        },
        "max_tokens": MAX_TOKENS,
        "temperature": temperature,
        "seed": seed,
    }
    reply = post(url, CHATS, body)
    if reply.status != 200:
        return Written(name, False, f"{reply.status}: {reply.json()['error']['message'][:200]}")
    choice = reply.json()["choices"][0]
    text: str = choice["message"]["content"]
    if choice["finish_reason"] == "length":
        stopped = Recognizer(grammar_in_rules(schema, order=order)[0]).leaves_at(text)
        return Written(name, False, None if stopped in (None, len(text)) else f"no beginning: {text[:200]!r}")
    problem = _invalid(schema, text)
    return Written(name, True, problem, problem is None and _repeats(text))


def _invalid(schema: Any, text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON ({error}): {text[:200]!r}"
    kind: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        # Formats are enforced, and `oneOf` may depend on it.
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(value)
    except ValidationError as error:
        return f"{error.message[:200]}: {text[:200]!r}"
    return None


def is_right(schema: Any, text: str) -> bool:
    """Whether the text is valid JSON without a name twice in an object."""
    return _invalid(schema, text) is None and not _repeats(text)


def _repeats(text: str) -> bool:
    """Whether an object has a name twice."""
    found: list[bool] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        found.append(len({name for name, _ in pairs}) < len(pairs))

    json.loads(text, object_pairs_hook=members)
    return any(found)


def generate_all(
    url: str,
    schemas: Iterable[tuple[str, Any]],
    each: int,
    temperature: float = 1.0,
    order: PropertyOrder = PropertyOrder.SCHEMA,
) -> list[Written]:
    """`each` answers for every schema."""
    jobs = [(name, schema, seed) for name, schema in schemas for seed in range(each)]

    def run(job: tuple[str, Any, int]) -> Written:
        return generate(url, *job, temperature, order)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, jobs))


def accepted(schemas: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Those that the translator takes."""
    taken: list[tuple[str, Any]] = []
    for name, schema in schemas:
        try:
            grammar_in_rules(schema)
        except JanServeError:
            continue
        taken.append((name, schema))
    return taken


def report(model: str, written: Sequence[Written]) -> bool:
    """Print one line and the problems; whether there are none."""
    problems = [answer for answer in written if answer.problem is not None]
    finished = sum(answer.finished for answer in written)
    repeats = sum(answer.repeats for answer in written)
    sys.stdout.write(
        f"{model}: {len(written)} answers, {finished} finished, {len(problems)} wrong, {repeats} with a name twice\n"
    )
    sys.stdout.writelines(f"    {answer.name}: {answer.problem}\n" for answer in problems)
    return not problems


def main() -> int:
    """Exit status 1 where an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=int, default=0, help="the first schema, to take them in pieces")
    parser.add_argument("--count", type=int, default=200, help="schemas of MaskBench")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    cases = load_suite("maskbench")
    random.Random(300).shuffle(cases)
    end = options.start + options.count
    schemas = accepted((case.name, case.schema) for case in cases[: 2 * end])[options.start : end]
    builtin = builtin_model()
    assert builtin is not None
    good = True
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "random.gguf"
        fixtures.write_tiny_llama(weights)
        for name, model, hot in (("built-in", builtin, 1), ("random weights", weights, 2)):
            with serving_models(Path(folder) / model.stem, model, flags=("--n-ctx", "4096")) as server:
                for order, each, temperature in (
                    (order, *each) for order in PropertyOrder for each in ((1, 0.0), (hot, 1.5))
                ):
                    written = generate_all(server.url(), schemas, each, temperature, order)
                    good = report(f"{name}, order {order.value}, temperature {temperature}", written) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

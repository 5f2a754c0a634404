"""Whether calls that break a schema are accepted in formats that write arguments in other notations than JSON: `python
-m tests.conformance.notations [--every N] [FORMAT ...]`. Each schema of MaskBench becomes the parameters of a tool.
Its instances are written as calls of each format, and so are changed ones. A constraint that accepts a text has to
accept nothing that the format's parser reads as an invalid call."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.errors import JanServeError
from tests.conformance.suites import SHARED, Case, load_suite
from tests.support.calls.judged_calls import NOTATIONS, CallJudge

_REPLACEMENTS: tuple[Any, ...] = (None, True, 0, -1.5, "", "1", "x", [], ["1"], {}, {"a": 1})


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is not true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def changed(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments with one other value, one fewer, or one more."""
    for name, value in arguments.items():
        others = [*_REPLACEMENTS, value if isinstance(value, str) else json.dumps(value), f"{value} "]
        yield from ({**arguments, name: other} for other in others)
        yield {key: value for key, value in arguments.items() if key != name}
    yield {**arguments, "unlisted": 1}


def check(form: ChatFormat, case: Case, counts: Counter[str]) -> list[str]:
    """Count what becomes of the instances; the first invalid one that is accepted."""
    instances = [
        (cast(dict[str, Any], value), valid) for value, valid in case.instances if isinstance(value, dict)
    ]
    schema: Any = case.schema
    if not instances or not isinstance(schema, dict):
        return []
    try:
        judge = CallJudge(form, cast(dict[str, Any], schema))
    except JanServeError:
        counts["refused schemas"] += 1
        return []
    counts["schemas"] += 1
    problems: list[str] = []
    for value, valid in instances:
        kind = "valid" if valid else "invalid"
        counts[kind] += 1
        for text in judge.written(value):
            found = judge.judged(text)
            if found.problem is not None or (found.accepted and not valid and same(found.read, value)):
                problems.append(f"{case.name}: {found.problem or 'invalid instance'}: {text[:300]!r}")
            if found.accepted:
                counts[f"{kind} accepted{'' if same(found.read, value) else ', read as another one'}"] += 1
    for value in changed(next((value for value, valid in instances if valid), instances[0][0])):
        counts["changed"] += 1
        for text in judge.written(value):
            found = judge.judged(text)
            counts["changed accepted"] += found.accepted
            if found.problem is not None:
                problems.append(f"{case.name}: {found.problem}: {text[:300]!r}")
    return problems[:1]


def main() -> int:
    """Exit status 1 where something invalid was accepted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="all, if none is named")
    parser.add_argument("--every", type=int, default=10, help="takes every n-th schema of MaskBench")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    cases = load_suite("maskbench", options.every)
    wrong = 0
    for form in NOTATIONS:
        if options.formats and form.name not in options.formats:
            continue
        counts: Counter[str] = Counter()
        problems = [problem for case in cases for problem in check(form, case, counts)]
        wrong += len(problems)
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        sys.stdout.write(f"{form.name}: {len(problems)} schemas wrong; {shown}\n")
        sys.stdout.writelines(f"    {problem}\n" for problem in problems)
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

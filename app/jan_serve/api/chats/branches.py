"""Messages that name their parents, as other pages keep them, in our form: a line with versions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jan_serve.api.chats.wire import MAX_BRANCHES
from jan_serve.errors import InvalidRequest

_ROOT = ""


class Node(msgspec.Struct, frozen=True):
    """message: None for one that is not shown. parent: empty for none."""

    parent: str
    message: dict[str, Any] | None


def line_of(nodes: Mapping[str, Node], leaf: str) -> list[dict[str, Any]]:
    """The messages from the first to the leaf, or else to the last one, with the other branches as versions.

    What follows no first message, as in a circle, is left out. Raises InvalidRequest for too many branches.
    """
    children = _children(nodes)
    chosen = _chosen(nodes, leaf)
    shown = list[dict[str, Any]]()
    waiting = [(_ROOT, shown, 0)]
    while waiting:
        place, line, depth = waiting.pop()
        if depth > MAX_BRANCHES:
            raise InvalidRequest(f"it has more than {MAX_BRANCHES} branches of branches")
        while siblings := children.get(place):
            place = chosen.get(place, siblings[-1])
            message = _message(nodes, place, siblings)
            line.append(message)
            for other in siblings:
                if other != place:
                    tail = [_message(nodes, other, siblings)]
                    message.setdefault("versions", []).append(tail)
                    waiting.append((other, tail, depth + 1))
    return shown


def _message(nodes: Mapping[str, Node], name: str, siblings: list[str]) -> dict[str, Any]:
    message = dict(nodes[name].message or {})
    if len(siblings) > 1:
        message["version"] = siblings.index(name)
    return message


def _children(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """The shown children of each shown message, and of the root."""
    above = dict[str, str]()
    children = dict[str, list[str]]()
    for name, node in nodes.items():
        if node.message is not None:
            children.setdefault(_shown_above(nodes, node.parent, above), []).append(name)
    return children


def _shown_above(nodes: Mapping[str, Node], name: str, above: dict[str, str]) -> str:
    """The nearest shown message from `name` up. above: what is known of those that are not shown."""
    passed = list[str]()
    while (node := nodes.get(name)) is not None and node.message is None and name not in above:
        above[name] = _ROOT  # a circle ends here
        passed.append(name)
        name = node.parent
    found = above.get(name, name) if name in nodes else _ROOT
    above.update(dict.fromkeys(passed, found))
    return found


def _chosen(nodes: Mapping[str, Node], leaf: str) -> dict[str, str]:
    """The shown child of each message on the way to the leaf."""
    above = dict[str, str]()
    chosen = dict[str, str]()
    name = _shown_above(nodes, leaf, above)
    while name != _ROOT:
        parent = _shown_above(nodes, nodes[name].parent, above)
        if parent in chosen:
            break
        chosen[parent] = name
        name = parent
    return chosen

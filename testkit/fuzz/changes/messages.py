"""Protobuf messages as trees, without their types, so that any field of any message can be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memwal_core.format.malformed import MalformedError
from memwal_core.format.wire import read_varint, varint
from memwal_core.rng import Rng
from testkit.fuzz.changes.values import NUMBERS, hostile_bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_FIELD = 4096
_MAX_DEPTH = 12
_NESTING = (100, 1_000, 20_000)
_REPEATS = (2, 100, 5_000)
_MOST_BYTES = 8 << 20
"""Of repeated fields, beyond two: memory of whoever changes a file counts as that of whoever reads it."""


@dataclass(slots=True)
class Node:
    """One field: its number, its wire type, and its value; a message's value is the list of its fields."""

    number: int
    kind: int
    value: int | bytes | list[Node]


def parse_tree(data: bytes, depth: int = 0) -> list[Node] | None:
    """Return the fields of a message; None if the bytes are not one."""
    at, found = 0, []
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            if not 1 <= number <= _MAX_FIELD or kind not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
                return None
            node, at = _value(data, at, Node(number, kind, 0), depth)
            found.append(node)
    except MalformedError:
        return None
    return found


def _value(data: bytes, at: int, node: Node, depth: int) -> tuple[Node, int]:
    if node.kind == _VARINT:
        node.value, at = read_varint(data, at)
        return node, at
    size = _FIXED_SIZES.get(node.kind)
    if size is None:
        size, at = read_varint(data, at)
    content = data[at : at + size]
    if len(content) != size:
        raise MalformedError("the bytes end within a field")
    node.value = content
    looks_nested = not content.isascii() or min(content, default=ord(" ")) < ord(" ")
    if node.kind == _BYTES and size > 1 and depth < _MAX_DEPTH and looks_nested:
        node.value = parse_tree(content, depth + 1) or content
    return node, at + size


def encode_tree(nodes: list[Node]) -> bytes:
    """Return the bytes of a message."""
    parts = []
    for node in nodes:
        parts.append(varint(node.number << 3 | node.kind))
        if node.kind == _VARINT:
            parts.append(varint(int(node.value) % 2**64))  # type: ignore[arg-type]
            continue
        content = _content(node)
        parts += [varint(len(content)), content] if node.kind == _BYTES else [content]
    return b"".join(parts)


def _content(node: Node) -> bytes:
    return encode_tree(node.value) if isinstance(node.value, list) else bytes(node.value)


def change_message(data: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change some fields of a message; the bytes, and what was done."""
    root = Node(0, _BYTES, parse_tree(data) or [])
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(root))
        if not places:
            break
        siblings, index = rng.choice(places)
        done.append(f"field {siblings[index].number} {_change_one(siblings, index, places, rng)}")
    return encode_tree(root.value), "; ".join(done)  # type: ignore[arg-type]


def _places(node: Node) -> Iterator[tuple[list[Node], int]]:
    if isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield node.value, index
            yield from _places(child)


def _change_one(siblings: list[Node], index: int, places: list[tuple[list[Node], int]], rng: Rng) -> str:
    node = siblings[index]
    if rng.random() < 0.6:
        return _change_value(node, places, rng)
    change: Callable[[], str] = rng.choice(
        (
            lambda: _removed(siblings, index),
            lambda: _repeated(siblings, index, rng.choice(_REPEATS)),
            lambda: _swapped(siblings, index, rng),
            lambda: _nested(siblings, index, rng.choice(_NESTING)),
            lambda: _renumbered(node, rng),
        )
    )
    return change()


def _change_value(node: Node, places: list[tuple[list[Node], int]], rng: Rng) -> str:
    if node.kind == _VARINT:
        node.value = rng.choice((*NUMBERS, int(node.value) + 1, max(0, int(node.value) - 1)))  # type: ignore[arg-type]
        return f"= {node.value}"
    if node.kind in _FIXED_SIZES:
        size = _FIXED_SIZES[node.kind]
        number = rng.choice(NUMBERS) % 256**size
        node.value = number.to_bytes(size, "little")
        return f"= {number}"
    if rng.random() < 0.3:
        node.value = _content(rng.choice([each[at] for each, at in places if each[at].kind == _BYTES]))
        return "= that of another field"
    node.value, what = hostile_bytes(_content(node), rng)
    return f"= {what}"


def _removed(siblings: list[Node], index: int) -> str:
    del siblings[index]
    return "removed"


def _repeated(siblings: list[Node], index: int, times: int) -> str:
    node = siblings[index]
    value = _content(node) if node.kind == _BYTES else node.value
    size = len(value) if isinstance(value, bytes) else 1
    times = max(2, min(times, _MOST_BYTES // max(1, size)))
    siblings[index:index] = [Node(node.number, node.kind, value)] * times
    return f"repeated {times} times"


def _swapped(siblings: list[Node], index: int, rng: Rng) -> str:
    other = rng.randrange(len(siblings))
    siblings[index], siblings[other] = siblings[other], siblings[index]
    return f"swapped with field {siblings[index].number}"


def _nested(siblings: list[Node], index: int, times: int) -> str:
    node = siblings[index]
    content = encode_tree([node])
    for _ in range(times):
        content = varint(node.number << 3 | _BYTES) + varint(len(content)) + content
        if len(content) > 1_000_000:
            break
    siblings[index] = Node(node.number, _BYTES, content)
    return f"nested {times} times"


def _renumbered(node: Node, rng: Rng) -> str:
    node.number = rng.choice((1, 2, 3, 7, 15, 16, 100, _MAX_FIELD))
    return f"became field {node.number}"

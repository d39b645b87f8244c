"""Values of any nested type, after any history of their fields, compared with a model in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from memwal_core.flushed.read.reshaping import Matching, TypedIds


@dataclass(frozen=True)
class Node:
    """A field: a leaf, a struct (``fields``), or a list, a large list or a map of one (``item``)."""

    number: int
    kind: str = "leaf"
    fields: tuple[tuple[str, Node], ...] = ()
    item: Node | None = None
    extra: tuple[int, ...] = ()

    def type(self) -> pa.DataType:
        if self.kind == "leaf":
            return pa.int64()
        if self.kind == "struct":
            return pa.struct([(name, node.type()) for name, node in self.fields])
        assert self.item is not None
        inner = self.item.type()
        if self.kind == "map":
            return pa.map_(pa.string(), inner)
        return pa.large_list(inner) if self.kind == "large" else pa.list_(inner)

    def ids(self) -> Iterator[int]:
        """Yield the ids of all fields inside, depth first."""
        yield from self.extra  # Of a map: its entries and its keys.
        for node in [node for _, node in self.fields] + ([self.item] if self.item is not None else []):
            yield node.number
            yield from node.ids()

    def value(self, draw) -> Any:
        if draw(st.integers(0, 4)) == 0:
            return None
        if self.kind == "leaf":
            return draw(st.integers(0, 99))
        if self.kind == "struct":
            return {name: node.value(draw) for name, node in self.fields}
        assert self.item is not None
        items = [self.item.value(draw) for _ in range(draw(st.integers(0, 2)))]
        return [(f"k{place}", item) for place, item in enumerate(items)] if self.kind == "map" else items


def drawn(draw, numbers: Iterator[int], depth: int = 3) -> Node:
    kind = draw(st.sampled_from(["leaf", "struct", "struct", "list", "large", "map"] if depth else ["leaf"]))
    number = next(numbers)
    if kind == "struct":
        names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
        return Node(number, kind, tuple((name, drawn(draw, numbers, depth - 1)) for name in names))
    extra = (next(numbers), next(numbers)) if kind == "map" else ()
    return Node(number, kind, item=None if kind == "leaf" else drawn(draw, numbers, depth - 1), extra=extra)


def evolved(draw, node: Node, numbers: Iterator[int]) -> Node:
    """Drop, rename and add fields of the structs; at least one field stays or is added."""
    if node.kind == "leaf":
        return node
    if node.kind != "struct":
        assert node.item is not None
        return Node(node.number, node.kind, item=evolved(draw, node.item, numbers), extra=node.extra)
    kept = [evolved(draw, each, numbers) for _, each in node.fields if draw(st.booleans())]
    added = [drawn(draw, numbers, 1) for _ in range(draw(st.integers(0 if kept else 1, 2)))]
    names = draw(st.permutations("abcdefgh"))
    return Node(node.number, "struct", tuple(zip(names, kept + added, strict=False)))


def expected(value: Any, before: Node, after: Node) -> Any:
    if value is None or after.kind == "leaf":
        return value
    if after.kind == "struct":
        found = {node.number: (name, node) for name, node in before.fields}
        return {
            name: expected(value[found[node.number][0]], found[node.number][1], node) if node.number in found else None
            for name, node in after.fields
        }
    assert before.item is not None
    assert after.item is not None
    if after.kind == "map":
        return [(key, expected(each, before.item, after.item)) for key, each in value]
    return [expected(each, before.item, after.item) for each in value]


@given(st.data())
def test_values_after_any_history_of_the_fields_inside_are_those_of_the_model(data: st.DataObject) -> None:
    numbers = count(1)
    before = drawn(data.draw, numbers)
    after = evolved(data.draw, before, numbers)
    values = [before.value(data.draw) for _ in range(data.draw(st.integers(0, 5)))]
    start = data.draw(st.integers(0, len(values)))
    found, wanted = TypedIds(before.type(), tuple(before.ids())), TypedIds(after.type(), tuple(after.ids()))
    matching = Matching()

    result = matching.match("s", found, wanted).apply(pa.array(values, before.type())[start:])

    assert matching.problems == []
    result.validate(full=True)
    assert result.type == after.type()
    assert result.to_pylist() == [expected(value, before, after) for value in values[start:]]

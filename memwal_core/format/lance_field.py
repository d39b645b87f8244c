"""A field of a Lance schema, as pylance shows it, and the ids that a schema's fields have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import pyarrow as pa
from lance.schema import LanceSchema

from memwal_core.format.messages import parse
from memwal_core.format.pb import lance_file_pb2 as pb


class LanceField(Protocol):
    """The part of pylance's field that is used here."""

    def name(self) -> str:
        """Return the column name."""
        ...

    def id(self) -> int:
        """Return the field id."""
        ...

    def children(self) -> Sequence[LanceField]:
        """Return the nested fields in order."""
        ...


def inner_ids(columns: Iterable[LanceField]) -> dict[str, tuple[int, ...]]:
    """Return for each column that has fields inside their ids, depth first."""
    found = {column.name(): tuple(all_ids(column.children())) for column in columns}
    return {name: ids for name, ids in found.items() if ids}


def column_ids(columns: Iterable[LanceField]) -> dict[str, tuple[int, ...]]:
    """Return for each column its id and those of all fields inside, depth first."""
    return {column.name(): tuple(all_ids([column])) for column in columns}


def all_ids(fields: Iterable[LanceField]) -> Iterator[int]:
    """Yield the ids of fields and of all fields inside, depth first."""
    for field in fields:
        yield field.id()
        yield from all_ids(field.children())


def field_path(columns: Iterable[LanceField], number: int) -> tuple[str, ...]:
    """Return the names that lead to the field with an id, the column first; nothing if there is no such field."""
    for each in columns:
        if each.id() == number:
            return (each.name(),)
        below = field_path(each.children(), number)
        if below:
            return (each.name(), *below)
    return ()


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a type that have ids of their own in Lance, in its order."""
    if pa.types.is_struct(kind):
        return [kind.field(number) for number in range(kind.num_fields)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    if pa.types.is_fixed_size_list(kind) and pa.types.is_struct(kind.value_type):
        return [kind.value_field]
    if pa.types.is_map(kind):
        return [pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)]
    return []


def count_ids(kind: pa.DataType) -> int:
    """Return how many ids a field of a type has in Lance, with those of all fields inside."""
    return 1 + sum(count_ids(inner.type) for inner in inner_fields(kind))


def numbered_schema(schema: pa.Schema, ids: Sequence[int]) -> LanceSchema:
    """Return a schema whose fields have these ids, depth first; Lance itself numbers them 0, 1, 2, ...

    Raises:
        ValueError: There are more or fewer fields than ids.
    """
    plain = LanceSchema.from_pyarrow(schema)
    known = dict(zip(all_ids(plain.fields()), ids, strict=True))
    # As pickle takes it apart: pylance has no other way to make a schema with ids.
    make, (metadata, *messages) = cast("tuple[Callable[..., LanceSchema], tuple[Any, ...]]", plain.__reduce__())
    fields = [parse(pb.Field(), message) for message in messages]
    for field in fields:
        field.id, field.parent_id = known[field.id], known.get(field.parent_id, field.parent_id)
    return make(metadata, *(field.SerializeToString() for field in fields))

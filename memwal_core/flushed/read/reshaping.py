"""Values with fields inside, in the base table's form: the fields are matched by id, as columns are (decision 0012)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from memwal_core.base_table.blobs import is_blob_type
from memwal_core.format.lance_field import count_ids, inner_fields
from memwal_core.native.casting import cast, cast_lists, cast_maps, is_list

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)

_LARGE_FORMS = ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})


@dataclass(frozen=True, slots=True)
class Reshaping:
    """How values become those of another type.

    Attributes:
        kind: The type that they become.
        inside: For each field inside of that type, the place of its values among the fields that there are, and how
            they change; None where there are none, which gives NULL. Without any, a cast is enough.
    """

    kind: pa.DataType
    inside: tuple[tuple[int, Reshaping] | None, ...] = ()

    def apply(self, values: _Values) -> _Values:
        """Return the values in the new type; a NULL stays one."""
        if isinstance(values, pa.ChunkedArray):
            return pa.chunked_array([self._applied(chunk) for chunk in values.chunks], self.kind)
        return self._applied(values)

    def _applied(self, array: pa.Array) -> pa.Array:
        if not self.inside:
            return cast(array, self.kind)
        if pa.types.is_struct(self.kind):
            return self._as_structs(array)
        *_, last = self.inside
        assert last is not None  # noqa: S101 - items are never missing
        if pa.types.is_map(self.kind):
            return cast_maps(array, self.kind, last[1].apply)
        return cast_lists(array, self.kind, last[1].apply)

    def _as_structs(self, array: pa.Array) -> pa.Array:
        merged = array.flatten()
        children = []
        for field, found in zip(self.kind, self.inside, strict=True):
            if found is None:
                children.append(pa.nulls(len(array), field.type))
                continue
            place, reshaping = found
            # Below a NULL, the values of a field that allows none stay as they are.
            children.append(reshaping.apply(merged[place] if field.nullable else array.field(place)))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(self.kind), mask=mask)


@dataclass(frozen=True, slots=True)
class TypedIds:
    """A type, and the field ids of all fields inside of it, depth first."""

    kind: pa.DataType
    ids: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether there is an id for each field."""
        return len(self.ids) == count_ids(self.kind) - 1

    def inside(self) -> Iterator[tuple[int, pa.Field, TypedIds]]:
        """Yield id, field and what is inside of it for each field right below."""
        start = 0
        for field in inner_fields(self.kind):
            end = start + count_ids(field.type)
            yield self.ids[start], field, TypedIds(field.type, self.ids[start + 1 : end])
            start = end


class Matching:
    """The matching of fields inside of columns, and what it meets.

    Attributes:
        renamed: Field id -> the former name.
        problems: What has no match.
    """

    def __init__(self) -> None:
        """Begin."""
        self.renamed: dict[int, str] = {}
        self.problems: list[str] = []

    def match(self, path: str, found: TypedIds, wanted: TypedIds) -> Reshaping:
        """Match what is inside of a field; meaningless if it adds to ``problems``."""
        if found == wanted:
            return Reshaping(wanted.kind)
        if not (found.is_whole and wanted.is_whole):
            if found.ids != wanted.ids or not is_castable(found.kind, wanted.kind):
                self._differ(path, found.kind, wanted.kind)
        elif pa.types.is_struct(found.kind) and pa.types.is_struct(wanted.kind):
            return self._match_structs(path, found, wanted)
        elif _are_alike(found.kind, wanted.kind):
            return self._match_items(path, found, wanted)
        elif not is_castable(found.kind, wanted.kind):
            self._differ(path, found.kind, wanted.kind)
        return Reshaping(wanted.kind)

    def _match_structs(self, path: str, found: TypedIds, wanted: TypedIds) -> Reshaping:
        places = {number: (place, field, inner) for place, (number, field, inner) in enumerate(found.inside())}
        inside: list[tuple[int, Reshaping] | None] = []
        for number, field, inner in wanted.inside():
            name = f"{path}.{field.name}"
            known = places.get(number)
            if known is None:
                if not field.nullable:
                    self.problems.append(f"the base table's NOT NULL field {name!r} was added after the flush")
                inside.append(None)
                continue
            place, former, below = known
            self._require_nullable(name, former, field)
            if former.name != field.name:
                self.renamed[number] = former.name
            inside.append((place, self.match(name, below, inner)))
        return Reshaping(wanted.kind, tuple(inside))

    def _match_items(self, path: str, found: TypedIds, wanted: TypedIds) -> Reshaping:
        """Match the items of lists, or the keys and the values of maps."""
        inside: list[tuple[int, Reshaping] | None] = []
        for place, (one, two) in enumerate(zip(_items(found), _items(wanted), strict=True)):
            (number, former, below), (wanted_number, field, inner) = one, two
            name = f"{path}.{field.name}"
            if number != wanted_number:
                self.problems.append(f"field {name!r} has the id {wanted_number} in the base table and {number} here")
            self._require_nullable(name, former, field)
            inside.append((place, self.match(name, below, inner)))
        return Reshaping(wanted.kind, tuple(inside))

    def _require_nullable(self, name: str, found: pa.Field, wanted: pa.Field) -> None:
        if found.nullable and not wanted.nullable:
            self.problems.append(f"field {name!r} is NOT NULL in the base table and may be NULL here")

    def _differ(self, path: str, found: pa.DataType, wanted: pa.DataType) -> None:
        self.problems.append(f"column {path!r} is {wanted} in the base table and {found} here")


def _items(typed: TypedIds) -> list[tuple[int, pa.Field, TypedIds]]:
    """Return the item of a list, or key and value of a map, which Lance has inside of one field."""
    found = list(typed.inside())
    return list(found[0][2].inside()) if pa.types.is_map(typed.kind) else found


def _are_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether both are lists of one layout with fields inside, or maps."""
    if not inner_fields(found) or not inner_fields(wanted) or found.id != wanted.id:
        return False
    if pa.types.is_fixed_size_list(found):
        return bool(found.list_size == wanted.list_size)
    return is_list(found) or (pa.types.is_map(found) and found.keys_sorted == wanted.keys_sorted)


def is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether every value survives the cast unchanged."""
    if isinstance(source, pa.BaseExtensionType) or isinstance(target, pa.BaseExtensionType):
        # Some have no hash, and the storage of Lance's blobs differs from file to file; their rows are never copied.
        return bool(source.equals(target)) or (is_blob_type(source) and is_blob_type(target))
    return bool(source.equals(target)) or any(source in forms and target in forms for forms in _LARGE_FORMS)

"""Fields inside of columns that change while rows wait, compared with a model (decision 0012)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format.lance_field import column_ids
from memwal_core.format.paths import generation_path
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.reader import Consistency
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.view import TableView
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.rival_mergers import WAYS, Way, prepared_by
from testkit.tables.native_regions import native_scan
from testkit.tables.readable import keys_of, read_with
from testkit.tables.regions import writer_settings

Row = dict[str, Any]
Edit = Callable[[Row], Row]

INNER = pa.struct([("p", pa.int64()), ("q", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        (
            "s",
            pa.struct(
                [("x", pa.int64()), ("in", pa.struct([("p", pa.int64()), ("q", pa.string())])), ("y", pa.string())]
            ),
        ),
        ("l", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))),
        ("m", pa.map_(pa.string(), INNER)),
        ("z", pa.string()),
    ]
)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def row(key: int, text: str) -> Row:
    return {
        "id": key,
        "s": {"x": key, "in": {"p": -key, "q": text} if key % 3 else None, "y": text} if key % 5 else None,
        "l": [{"a": key, "b": 10 * key}] * (key % 4) + ([None] if key % 2 else []) if key % 7 else None,
        "m": [(text, {"p": key, "q": text}), ("none", None)][: key % 3] if key % 4 else None,
        "z": text,
    }


def rows(text: str, *keys: int) -> list[Row]:
    return [row(key, text) for key in keys]


@dataclass(frozen=True)
class Change:
    """What Lance is told, and what becomes of the fields: of ``s``, ``s.in``, the items of ``l``, the values of ``m``.

    ``in_base`` is what becomes of ``s`` in rows of the base table, if it is something else.
    """

    tell: Callable[[lance.LanceDataset], object]
    s: Edit = dict
    inner: Edit = dict
    item: Edit = dict
    entry: Edit = dict
    in_base: Callable[[Row], Row | None] | None = None

    def edited(self, found: Row) -> Row:
        s = found["s"]
        if s is not None:
            inner = {
                name: self.inner(value) if name == "in" and value is not None else value for name, value in s.items()
            }
            s = self.s(inner)
        items = found["l"]
        if items is not None:
            items = [None if item is None else self.item(item) for item in items]
        if self.in_base is not None and s is not None and found["z"] == "base":
            s = self.in_base(s)
        entries = found["m"]
        if entries is not None:
            entries = [(key, value and self.entry(value)) for key, value in entries]
        return {**found, "s": s, "l": items, "m": entries}


def add(name: str, kind: pa.DataType) -> Callable[[lance.LanceDataset], object]:
    return lambda table: table.add_columns(pa.schema([pa.field(name, kind)]))


def drop(path: str) -> Callable[[lance.LanceDataset], object]:
    return lambda table: table.drop_columns([path])


def rename(path: str, name: str) -> Callable[[lance.LanceDataset], object]:
    return lambda table: table.alter_columns({"path": path, "name": name})


def in_turn(*steps: Callable[[lance.LanceDataset], object]) -> Callable[[lance.LanceDataset], object]:
    def tell(table: lance.LanceDataset) -> None:
        for step in steps:
            step(lance.dataset(table.uri))

    return tell


def without(*names: str) -> Edit:
    return lambda found: {name: value for name, value in found.items() if name not in names}


def plus(**values: object) -> Edit:
    return lambda found: {**found, **values}


def named(**names: str) -> Edit:
    return lambda found: {names.get(name, name): value for name, value in found.items()}


def chained(*edits: Edit) -> Edit:
    def edit(found: Row) -> Row:
        for each in edits:
            found = each(found)
        return found

    return edit


def s(**inside: pa.DataType) -> pa.DataType:
    return pa.struct(list(inside.items()))


CHANGES = {
    "added": Change(add("s", s(c=pa.int64())), s=plus(c=None)),
    "added deeper": Change(add("s", s(**{"in": s(r=pa.float64())})), inner=plus(r=None)),
    "added to items": Change(add("l", pa.list_(s(c=pa.string()))), item=plus(c=None)),
    "added with fields inside": Change(
        add("s", s(c=s(d=pa.int8()), e=pa.list_(s(f=pa.int8())))), s=plus(c=None, e=None)
    ),
    "dropped first": Change(drop("s.x"), s=without("x")),
    "dropped last": Change(drop("s.y"), s=without("y")),
    "dropped deeper": Change(drop("s.in.p"), inner=without("p")),
    "dropped with fields inside": Change(drop("s.in"), s=without("in")),
    "dropped of items": Change(drop("l.item.a"), item=without("a")),
    "dropped of maps": Change(drop("m.entries.value.p"), entry=without("p")),
    "renamed": Change(rename("s.y", "why"), s=named(y="why")),
    "renamed deeper": Change(rename("s.in.q", "queue"), inner=named(q="queue")),
    "renamed in items": Change(rename("l.item.b", "bee"), item=named(b="bee")),
    "swapped": Change(
        in_turn(rename("l.item.a", "t"), rename("l.item.b", "a"), rename("l.item.t", "b")), item=named(a="b", b="a")
    ),
    "made anew": Change(in_turn(drop("s.y"), add("s", s(y=pa.string()))), s=chained(without("y"), plus(y=None))),
    "made anew in items": Change(
        in_turn(drop("l.item.b"), add("l", pa.list_(s(b=pa.int64())))), item=chained(without("b"), plus(b=None))
    ),
    "replaced": Change(
        in_turn(add("s", s(c=pa.int64())), drop("s.x"), drop("s.in"), drop("s.y")),
        s=chained(plus(c=None), without("x", "in", "y")),
        in_base=lambda _: None,  # Lance has nothing left that tells whether there was a value.
    ),
    "column renamed as well": Change(
        in_turn(rename("z", "zed"), rename("s.in.p", "pea"), drop("s.x"), add("s", s(x=pa.string()))),
        s=chained(without("x"), plus(x=None)),
        inner=named(p="pea"),
    ),
}


def changed(change: Change, found: list[Row]) -> dict[int, Row]:
    model = {}
    for each in found:
        edited = change.edited(each)
        if change is CHANGES["column renamed as well"]:
            edited["zed"] = edited.pop("z")
        model[each["id"]] = edited
    return model


def answers(view: TableView) -> list[object]:
    """What queries of several kinds say."""
    whole = {found["id"]: found for found in view.scan().to_arrow().to_pylist()}
    looked_up = {found["id"]: found for found in view.lookup(keys_of(*range(30))).to_pylist()}
    counted = [
        view.scan(ScanRequest(filter_sql=each)).count() for each in (None, "s IS NULL", "l IS NOT NULL AND id > 2")
    ]
    alone = view.scan(ScanRequest(columns=("s",), filter_sql="id > 1")).to_arrow().column(0).to_pylist()
    return [whole, looked_up, counted, sorted(map(repr, alone))]


def expected(model: dict[int, Row]) -> list[object]:
    found = list(model.values())
    counted = [
        len(found),
        sum(each["s"] is None for each in found),
        sum(each["l"] is not None and each["id"] > 2 for each in found),
    ]
    return [model, model, counted, sorted(repr(each["s"]) for each in found if each["id"] > 1)]


def ids_of(uri: str) -> dict[str, tuple[int, ...]]:
    return column_ids(lance.dataset(uri).lance_schema.fields())


@pytest.mark.req("MRG-08", "RD-10", "WRT-27", "FMT-20")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rows_written_before_and_after_a_change_inside_of_columns_read_and_merge_as_one_table(
    tmp_path, change: Change, codec: str, way: Way
) -> None:
    """Nobody could write any more, rows could not be flushed, and every read of the table was refused."""
    uri = str(tmp_path / "t")
    settings = writer_settings(new_region_codec=codec).model_copy(update={"merge": prepared_by(way)})
    base = rows("base", *range(1, 10))
    table = Table.create(uri, SCHEMA, key="id", buckets=1, settings=settings)
    lance.write_dataset(pa.Table.from_pylist(base, SCHEMA), uri, mode="append")
    crashed = TableWriter.open(table.base)
    crashed.put(pa.Table.from_pylist(rows("flushed", 2, 3, 4, 11, 12), SCHEMA))
    crashed.flush()
    crashed.put(pa.Table.from_pylist(rows("durable", 3, 13, 14), SCHEMA))
    crashed.delete(keys_of(5, 12))
    older = {each["id"]: each for each in base}
    older |= {each["id"]: each for each in (*rows("flushed", 2, 3, 4, 11), *rows("durable", 3, 13, 14))}
    del older[5]

    change.tell(lance.dataset(uri))

    model = changed(change, list(older.values()))
    assert answers(Table.open(uri, settings=settings).view(Consistency.DURABLE)) == expected(model)
    assert answers(read_with(uri, crashed.writers.values()).view(Consistency.IN_PROCESS)) == expected(model)

    fresh = changed(change, rows("fresh", 4, 6, 14, 15, 16))
    with TableWriter.open(table.base, takeover="fence") as writer:
        writer.put(pa.Table.from_pylist(list(fresh.values()), lance.dataset(uri).schema))
        writer.flush()
    model |= fresh
    opened = Table.open(uri, settings=settings)
    assert answers(opened.view()) == expected(model)
    (region,) = opened.opened.manifests.load_many(opened.opened.manifests.region_ids())
    newest = f"{uri}/{generation_path(region.region_id, region.flushed_generations[-1].path)}"
    assert {name: ids for name, ids in ids_of(newest).items() if name != "_tombstone"} == ids_of(uri)

    assert opened.run(MergeRequest()).outcome is JobOutcome.DONE
    lance.dataset(uri).validate()
    assert {each["id"]: each for each in lance.dataset(uri).to_table().to_pylist()} == model
    assert answers(Table.open(uri, settings=settings).view()) == expected(model)


@pytest.mark.req("MRG-08")
def test_new_field_inside_with_the_id_of_a_dropped_one_parks_the_region_and_is_not_read(tmp_path, way: Way) -> None:
    uri = str(tmp_path / "t")
    settings = writer_settings().model_copy(update={"merge": prepared_by(way)})
    table = Table.create(uri, SCHEMA, key="id", settings=settings)
    with table.writer() as writer:
        writer.put(pa.Table.from_pylist(rows("flushed", 1, 2), SCHEMA))
        writer.flush()
    old = ids_of(uri)["s"]
    drop("s.y")(lance.dataset(uri))
    lance.dataset(uri).drop_columns(["l", "m", "z"])
    add("s", s(w=pa.string()))(lance.dataset(uri))
    assert ids_of(uri)["s"] == old

    report = Table.open(uri, settings=settings).run(MergeRequest())

    assert report.regions[0].verdict is Verdict.PARKED
    assert "no retained version proves" in report.regions[0].evidence
    with pytest.raises(InvalidRequestError, match="no retained version proves"):
        Table.open(uri, settings=settings).to_arrow()


@pytest.mark.req("FMT-20")
def test_pylance_reads_what_is_written_after_a_change_inside_of_columns(tmp_path) -> None:
    uri = str(tmp_path / "t")
    table = Table.create(uri, SCHEMA, key="id", settings=writer_settings(pack_below_bytes=0))
    in_turn(drop("s.x"), add("s", s(c=pa.int64())), drop("l.item.a"))(lance.dataset(uri))
    model = changed(Change(id, chained(without("x"), plus(c=1)), item=without("a")), rows("new", 1, 2, 3, 4))
    with table.writer() as writer:
        writer.put(pa.Table.from_pylist(list(model.values()), lance.dataset(uri).schema))
        writer.flush()
    regions = table.opened.manifests.load_many(table.opened.manifests.region_ids())

    found = native_scan(uri, regions, ["id", "s", "l", "m", "z"], "id").to_pylist()

    assert {each["id"]: each for each in found} == model
    with pytest.raises(OSError, match="cannot change a column's type on a table with a MemWAL"):
        lance.dataset(uri).alter_columns({"path": "s.c", "data_type": pa.int32()})

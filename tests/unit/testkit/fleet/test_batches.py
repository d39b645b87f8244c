"""What a table of the fleet may hold while it is written: whatever else it holds is noticed."""

from __future__ import annotations

import pyarrow as pa

from testkit.fleet.batches import FleetModel, batch_of
from testkit.tables.people import people

TABLE, ROWS = "sound-00", 20
WRITTEN, UNDER_WAY = 12, 14


def written(batches: int) -> dict[int, str]:
    model = FleetModel(TABLE, ROWS)
    model.advance(batches)
    return model.rows


def found(rows: dict[int, str]) -> pa.Table:
    return people(*rows).set_column(1, "name", pa.array(rows.values(), pa.string()))


def wrong(rows: dict[int, str]) -> set[int]:
    model = FleetModel(TABLE, ROWS)
    model.advance(WRITTEN)
    return set(model.mismatches(found(rows), UNDER_WAY))


def test_batches_are_the_same_each_time_and_some_delete():
    assert batch_of(TABLE, 3, ROWS) == batch_of(TABLE, 3, ROWS)
    assert batch_of(TABLE, 3, ROWS) != batch_of(TABLE, 4, ROWS)
    assert [number for number in range(20) if batch_of(TABLE, number, ROWS).value is None] == [6, 13]


def test_rows_of_any_moment_since_the_batches_that_were_counted_are_right():
    assert not any(wrong(written(batches)) for batches in (WRITTEN, WRITTEN + 1, UNDER_WAY))


def test_half_a_batch_under_way_is_right():
    before, after = written(WRITTEN), written(WRITTEN + 1)
    some = dict(list(after.items() - before.items())[: ROWS // 2])

    assert some
    assert not wrong(before | some)


def test_lost_older_and_unknown_rows_are_wrong():
    rows = written(WRITTEN)
    untouched = [key for key in rows if all(key not in batch_of(TABLE, number, ROWS).ids for number in (12, 13))]
    lost, older, unknown = untouched[0], untouched[1], 10**6

    assert wrong({key: name for key, name in rows.items() if key != lost}) == {lost}
    assert wrong(rows | {older: "an older name"}) == {older}
    assert wrong(rows | {unknown: "somebody"}) == {unknown}


def test_a_key_that_is_there_twice_is_wrong():
    rows = written(WRITTEN)
    model = FleetModel(TABLE, ROWS)
    model.advance(WRITTEN)
    twice = pa.concat_tables([found(rows), found(dict(list(rows.items())[:1]))])

    assert model.mismatches(twice, UNDER_WAY)


def test_deleted_rows_that_are_back_are_wrong():
    deleted = set(batch_of(TABLE, 6, ROWS).ids) - {
        key for number in range(7, UNDER_WAY) for key in batch_of(TABLE, number, ROWS).ids
    }

    assert deleted
    assert wrong(written(WRITTEN) | dict.fromkeys(deleted, "back")) == deleted

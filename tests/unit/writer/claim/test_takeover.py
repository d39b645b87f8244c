"""Which epochs were given back, as the release note remembers it."""

from __future__ import annotations

import uuid

import pytest

from memwal_core.format.paths import writer_release_path
from memwal_core.ids import RegionId
from memwal_core.storage import open_store
from memwal_core.writer.claim.takeover import Releases, note_release, read_releases

REGION = RegionId(uuid.UUID(int=7))


def of(*epochs: int) -> Releases:
    known = Releases()
    for epoch in epochs:
        known = known.with_epoch(epoch)
    return known


def test_epochs_in_a_row_are_one_range() -> None:
    assert of(3, 4, 5, 8, 9) == Releases(9, ((3, 5), (8, 9)))


@pytest.mark.parametrize(
    ("first", "last", "missing"), [(3, 9, 2), (1, 9, 4), (4, 5, 0), (6, 7, 2), (5, 6, 1), (9, 12, 3), (9, 8, 0)]
)
def test_epochs_that_were_not_given_back_are_counted(first: int, last: int, missing: int) -> None:
    assert of(3, 4, 5, 8, 9).missing(first, last) == missing


def test_note_stays_small_and_what_it_forgets_counts_as_not_given_back() -> None:
    known = of(*range(1, 1000, 2))

    assert len(known.ranges) == 64
    assert known.missing(872, 998) == 63 + 1
    assert known.missing(1, 999) > known.missing(872, 999)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"released_epoch": "x"}', b'{"released_epoch": 4}', b'{"released_epoch": 4, "released": [3]}'],
)
def test_unreadable_note_names_no_epoch(tmp_path, content: bytes) -> None:
    store = open_store(str(tmp_path))
    store.put(writer_release_path(REGION), content)

    assert read_releases(store, REGION) == Releases()


def test_late_note_of_an_older_writer_changes_nothing(tmp_path) -> None:
    store = open_store(str(tmp_path))
    note_release(store, REGION, 5, lambda: True)

    note_release(store, REGION, 4, lambda: True)
    note_release(store, REGION, 6, lambda: False)

    assert read_releases(store, REGION) == Releases(5, ((5, 5),))

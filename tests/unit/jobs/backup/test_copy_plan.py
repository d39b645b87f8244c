"""What a moment consists of, and when reads do not belong to one moment."""

from __future__ import annotations

import pytest

from memwal_core.errors import CorruptionError
from memwal_core.jobs.backup.plan import (
    CopiedFile,
    CopyMoment,
    Journal,
    files_to_copy,
    out_of_step,
    unflushed_entries,
)
from memwal_core.region import RegionManifest
from testkit.tables.native_regions import native_region_id

FIRST, SECOND = native_region_id(1), native_region_id(2)


def moment(*files: CopiedFile) -> CopyMoment:
    return CopyMoment(3, 10, 1, 2, 4, files, {"a/hint": b"\x00\xff"}, ("_versions/3.manifest", b"\x01"))


def test_file_of_another_length_is_copied_again() -> None:
    first, second, third = (CopiedFile(name, f"t/{name}", 5) for name in "abc")
    assert files_to_copy(moment(first, second, third), {"t/a": 5, "t/b": 4}) == (second, third)


@pytest.mark.parametrize(
    ("replay_after", "listed", "expected"),
    [
        (0, (), ()),
        (0, (1, 2, 3), (1, 2, 3)),
        (2, (1, 2, 3, 4), (3, 4)),
        (4, (2, 3, 4), (4,)),
        (4, (), ()),
        (2, (1, 4), None),
        (2, (3, 5), None),
    ],
)
def test_unflushed_entries_are_those_behind_the_replay_pointer_without_a_hole(
    replay_after: int, listed: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    assert unflushed_entries(replay_after, listed) == expected


def test_version_that_goes_beyond_the_manifests_is_out_of_step() -> None:
    manifest = RegionManifest(FIRST, current_generation=4)
    assert list(out_of_step([manifest], {FIRST: 3, SECOND: 0})) == []
    assert "generation 4" in next(out_of_step([manifest], {FIRST: 4}))
    assert "not listed" in next(out_of_step([manifest], {SECOND: 1}))


def test_journal_survives_its_bytes_and_remembers_what_was_given_up() -> None:
    old, kept, new = (CopiedFile(name, name, 1) for name in ("old", "kept", "new"))
    journal = Journal("/t", "backup", moment(old, kept))
    assert Journal.decode(journal.encode(), "j") == journal
    assert journal.followed_by(moment(kept, new)).superseded == ("old",)
    assert journal.followed_by(moment(kept, new)).followed_by(moment(old)).superseded == ("kept", "new")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"files": 1}', b"\xff"])
def test_unreadable_journal_is_an_error_with_its_path(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="journal"):
        Journal.decode(data, "s3://x/journal.json")

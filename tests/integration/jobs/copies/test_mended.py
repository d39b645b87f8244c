"""A copy that was interrupted, of a table whose files are no longer what they were then (S1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.jobs.backup.identity import with_same_identity
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.backup.run import COPY_PINNED, copy_table
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from tests.integration.jobs.copies.places import RIGHT, make_place, make_table, seen


def test_file_that_was_put_back_before_it_was_copied_is_copied_as_it_is_now(tmp_path: Path) -> None:
    """A moment that was noted with the length of a file that was cut off must not be asked for again and again."""
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    request = BackupRequest(target=place.uri("copy.lance"))
    file = next(Path(table.uri, "data").iterdir())
    content = file.read_bytes()
    file.write_bytes(content[:-40])
    with pytest.raises(SimulatedCrash):
        copy_table(JobContext(table.opened, failpoints=ArmedFailpoints().arm(COPY_PINNED)), request, with_same_identity)
    file.write_bytes(content)

    assert table.run(request).outcome is JobOutcome.DONE

    assert seen(place.open("copy.lance")) == RIGHT

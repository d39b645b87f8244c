"""What is still told once old versions of a table were removed, and what must not be taken for a break of history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.errors import FrozenError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.table import Table
from testkit.hands.clients import lancedb_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import people
from tests.integration.jobs.freeze.histories import LANCEDB, PYLANCE, region_of, rows_of


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t.lance")


def remove_old_versions(uri: str) -> None:
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def merged_by_others(uri: str, *ids: int) -> None:
    """Merge the next generation as another program does, with a mark of Lance's own."""
    base = Table.open(uri).base
    merge_natively(base, people(*ids, name="flushed"), {region_of(uri): 1})


def seen_without_a_merge(uri: str) -> None:
    """Let a job see a table of which nothing is merged, and that has no region snapshot."""
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO


def append(uri: str) -> None:
    lance.write_dataset(people(99, name="appended"), uri, mode="append")


@pytest.mark.parametrize("later", [lambda _: None, append], ids=["newest", "followed"])
def test_first_merge_of_another_program_freezes_nothing_after_the_remembered_version_was_removed(
    uri: str, later: Callable[[str], None]
) -> None:
    """The table froze as `index-made-anew`: no version between was missing, only the remembered one itself."""
    PYLANCE.make(uri)
    seen_without_a_merge(uri)
    PYLANCE.write(uri, [1, 2], "flushed")
    merged_by_others(uri, 1, 2)
    remove_old_versions(uri)
    later(uri)

    PYLANCE.write(uri, [3], "since")
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.DONE
    assert {1: "flushed", 2: "flushed", 3: "since"}.items() <= rows_of(uri).items()


def made_anew(uri: str) -> None:
    """Remove and set LanceDB's write spec, and delete a row in between."""
    table = lancedb_table(uri)
    table.unset_lsm_write_spec()
    table.delete("id = 99")
    LANCEDB.enable(uri)


@pytest.mark.parametrize("removed", ["the remembered version", "all"])
def test_index_that_was_made_anew_still_freezes_after_a_merge_of_another_program(uri: str, removed: str) -> None:
    LANCEDB.make(uri)
    seen_without_a_merge(uri)
    append(uri)
    seen_without_a_merge(uri)
    LANCEDB.write(uri, [1], "flushed")
    LANCEDB.write(uri, [99], "flushed")
    if removed == "all":
        made_anew(uri)
        merged_by_others(uri, 1)
        remove_old_versions(uri)
    else:
        append(uri)  # A version of its own, so that only the remembered one goes.
        remove_old_versions(uri)
        made_anew(uri)
        merged_by_others(uri, 1)

    with pytest.raises(FrozenError) as caught:
        Table.open(uri).run(MergeRequest())
    assert caught.value.facts["causes"] == ["index-made-anew"]
    assert 99 not in rows_of(uri)

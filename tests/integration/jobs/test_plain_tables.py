"""A Lance table without MemWAL: jobs refuse it and leave nothing beside it."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from memwal_core.errors import FrozenError, InvalidRequestError
from memwal_core.format.paths import MEM_WAL_DIRECTORY
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.table import Table
from testkit.tables.people import people

ASKED = {
    "backup": {"target": "copy"},
    "clone": {"target": "copy"},
    "ingest": {"sources": ["rows.parquet"], "batch": "one"},
    "gc": {"dry_run": False},
}


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(people(1, 2), "plain.lance")
    return str(tmp_path / "plain.lance")


@pytest.mark.parametrize(
    "kind", [each for each in REQUESTS if not each.info.takes_plain_tables], ids=lambda each: each.info.name
)
def test_job_refuses_a_plain_table_and_leaves_nothing_beside_it(kind: type[JobRequest], uri: str) -> None:
    """Each left its lease and its history; three failed merges let the first one pause once MemWAL was enabled."""
    request = kind.model_validate(ASKED.get(kind.info.name, {}))

    with pytest.raises(InvalidRequestError, match="no MemWAL index"):
        Table.open(uri).run(request)

    assert not Path(uri, MEM_WAL_DIRECTORY).exists()
    assert not Path("copy").exists()


def test_first_job_on_a_table_whose_index_is_gone_beside_regions_still_freezes_it(uri: str) -> None:
    table = Table.open(uri)
    table.enable(regions=1)
    with table.writer() as writer:
        writer.put(people(3))
    lance.write_dataset(people(4), uri, mode="overwrite")

    with pytest.raises(FrozenError, match="the MemWAL index is gone"):
        Table.open(uri).run(MergeRequest())

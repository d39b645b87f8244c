"""A region manifest with a number that has no next: nobody wrote that many, so it is damage of one region."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memwal_core.errors import DamagedError
from memwal_core.format.paths import manifest_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.table import Table
from testkit.tables.people import make_people_table, people


@pytest.mark.parametrize("counter", ["writer_epoch", "replay_after_wal_id", "wal_id_last_seen", "current_generation"])
def test_counter_at_its_end_costs_one_region(tmp_path: Path, counter: str) -> None:
    """Flush, doctor and every read of the table ended with an error about a number, and named no region."""
    uri = str(tmp_path / "t")
    make_people_table(uri, buckets=2)
    with Table.open(uri).writer() as writer:
        writer.put(people(*range(20)))
    table = Table.open(uri)
    hurt, whole = (table.opened.manifests.load(each) for each in table.opened.manifests.region_ids())
    forged = replace(hurt, version=hurt.version + 1, **{counter: 2**64 - 1})
    table.opened.base.store.put_if_absent(manifest_path(hurt.region_id, forged.version), encode_manifest(forged))

    report = Table.open(uri).run(FlushRequest())
    assert [each.region_id for each in report.flushed] == [whole.region_id]
    assert list(report.unflushable) == [hurt.region_id]
    critical = [each for each in Table.open(uri).doctor().findings if each.severity.value == "critical"]
    assert any(str(hurt.region_id) in str(each) and "counters_fit" in str(each) for each in critical)
    with pytest.raises(DamagedError, match="counters_fit") as caught:
        Table.open(uri).to_arrow(consistency="durable")
    assert caught.value.facts["region_id"] == str(hurt.region_id)

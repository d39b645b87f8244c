"""Jobs that may take long say how far they are."""

from __future__ import annotations

from pathlib import Path

from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings import CompactSettings, GcSettings, Settings, WalCollection
from memwal_core.table import Table
from testkit.tables.garbage import later
from testkit.tables.people import make_people_table, people

SETTINGS = Settings(
    compact=CompactSettings(min_fragments=2, retention_s=3600, keep_versions=1),
    gc=GcSettings(grace_s=0, collect_wal=WalCollection.ALL),
)


def test_flush_count_catch_up_compaction_and_collection_tell_how_far_they_are(tmp_path: Path) -> None:
    """Only merges, copies and repairs did: hours of a first catch-up or of a large collection looked like a hang."""
    uri = make_people_table(str(tmp_path / "t"), rows=people(100, 101), buckets=2).uri
    table = Table.open(uri, settings=SETTINGS)
    table.base.dataset().create_scalar_index("id", "BTREE", name="id_idx")
    with table.writer() as writer:
        writer.put(people(*range(10)))

    table = Table.open(uri, settings=SETTINGS, clock=later(7200))

    def told(request: JobRequest) -> set[tuple[str, int, int | None]]:
        found = set()
        table.run(request, progress=lambda *stage: found.add(stage))
        return found

    assert ("regions", 2, 2) in told(FlushRequest(due_only=False))
    told(MergeRequest())
    assert ("keys read", 12, 12) in told(VerifyRequest())
    assert ("indexes", 1, 1) in told(CatchupRequest())
    assert any(stage == "fragments rewritten" for stage, _, _ in told(CompactRequest(force=True, remove_versions=True)))
    assert any(stage.endswith("collected") for stage, _, _ in told(GcRequest(dry_run=False)))

"""What an audit saw: by the suites that it ran, and nothing on doubt."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memwal_core.format.paths import audited_path
from memwal_core.ids import RegionId
from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.region.audited import Audited, AuditedStore
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, open_store

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
SEEN = {REGION: {"aa_gen_1": "", "bb_gen_2": "cut short"}}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "t"), settings=StorageSettings(fsync=False))


def test_record_of_an_audit_is_read_for_the_same_suites_alone(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("a")
    (tmp_path / "b.json").write_text("b")
    both, one = [str(tmp_path / "a.json"), str(tmp_path / "b.json")], [str(tmp_path / "a.json")]
    AuditedStore(store, digest_of_suites(both)).record(NOW, SEEN)

    again = AuditedStore(store, digest_of_suites(both[::-1])).load()
    assert (again.at, again.seen, again.has_seen(REGION, "cc_gen_3")) == (NOW, SEEN, False)
    assert (again.unreadable(REGION, "aa_gen_1"), again.unreadable(REGION, "bb_gen_2")) == ("", "cut short")
    assert AuditedStore(store, digest_of_suites(one)).load() == Audited()

    (tmp_path / "b.json").write_text("changed")
    assert AuditedStore(store, digest_of_suites(both)).load() == Audited()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"seen": {}}', b'{"audited_at": "2026-06-01T00:00:00+00:00", "seen": {"x": {}}}']
)
def test_unreadable_record_counts_as_none(store: ObjectStore, content: bytes) -> None:
    store.put(audited_path("00"), content)

    assert AuditedStore(store, "00").load() == Audited()


def test_what_people_released_is_known_without_an_audit(store: ObjectStore) -> None:
    quarantine = QuarantineStore(store)
    quarantine.add(Quarantined(REGION, 2, ("key_not_null",), NOW.isoformat()))
    quarantine.release(REGION, 2, NOW)

    assert AuditedStore(store, "00").load() == Audited(released=frozenset({(REGION, 2)}))

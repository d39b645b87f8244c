"""Each invariant is broken on a real table, ours and pylance's, and the doctor names exactly that."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import Choice, Memory
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import FrozenError
from memwal_core.format.paths import (
    ARROW_WAL_SUFFIX,
    LANCE_WAL_SUFFIX,
    generation_path,
    manifest_directory,
    manifest_path,
    version_hint_path,
    wal_entry_name,
    wal_entry_path,
)
from memwal_core.format.pb import legacy_mem_wal_pb2 as legacy_pb
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.doctor.commands import command_for
from memwal_core.observe.findings import Level, Severity
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.register import hint_bytes
from memwal_core.settings import DoctorSettings, Settings
from memwal_core.settings.status import StatusSettings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, TableWriter
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.faults.file_damage import damage_file
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

CALM = StatusSettings(
    oldest_unmerged_warn_s=1e9,
    oldest_unmerged_page_s=1e9,
    epoch_changes_warn=1000,
    epoch_changes_page=1000,
    garbage_warn=1.0,
    garbage_page=1.0,
)
"""Damage is looked at long after it was done, by pylance writers that release nothing; that is not what is tested."""

STRANGER = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))


@dataclass
class Patient:
    """A table with two flushed generations per region, and how to damage and examine it."""

    table: BaseTable
    suffix: str

    @property
    def vandal(self):
        return Vandal(self.table)

    @property
    def manifests(self):
        return ManifestStore(self.table.store, self.table.ids)

    @property
    def regions(self):
        return self.manifests.region_ids()

    def manifest(self, number=0):
        return self.manifests.load(self.regions[number])

    def admin(self, later_s=0.0, **settings):
        clock = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=later_s))
        return Table.open(self.table.uri, settings=Settings(**{"status": CALM, **settings}), clock=clock)

    def findings(self, later_s=0.0, **settings):
        report = self.admin(later_s, **settings).doctor()
        assert report.healthy == (not [f for f in report.findings if f.severity is not Severity.INFO])
        assert report.level is max((f.severity.level for f in report.findings), key=list(Level).index, default=Level.OK)
        return report.findings

    def names(self, later_s=0.0, **settings):
        return [finding.finding_id for finding in self.findings(later_s, **settings)]


def our_table(uri):
    table = make_people_table(uri, rows=people(*range(20)), buckets=2)
    with TableWriter.open(table) as writer:
        for name in ("first", "second"):
            writer.put(people(*range(100, 120), name=name))
            writer.flush()
    return Patient(table, LANCE_WAL_SUFFIX)


def native_table(uri):
    table = make_people_table(uri, rows=people(*range(20)), buckets=2)
    for number in (1, 2):
        keys = range(100 * number, 100 * number + 10)
        generations = [[Put(people(*keys, name=name))] for name in ("first", "second")]
        write_native_generations(uri, native_region_id(number), generations)
    return Patient(table, ARROW_WAL_SUFFIX)


@pytest.fixture(params=[our_table, native_table], ids=["ours", "native"])
def patient(request, tmp_path):
    return request.param(str(tmp_path / "t"))


@pytest.fixture
def ours(tmp_path):
    return our_table(str(tmp_path / "t"))


@pytest.fixture
def native(tmp_path):
    return native_table(str(tmp_path / "t"))


def test_sound_table_is_healthy_before_and_after_its_merge(patient):
    assert patient.names() == []
    patient.admin().run(MergeRequest())
    assert patient.names() == []


def test_examination_changes_no_object(patient):
    def objects():
        return {info.path: (info.size_bytes, info.modified) for info in patient.table.store.list_objects("")}

    patient.vandal.remove(patient.regions[0], patient.manifest().flushed_generations[0].path)
    before = objects()
    assert patient.names() != []
    assert objects() == before


class TestManifests:
    def test_unreadable_manifest(self, patient):
        patient.vandal.garble_manifest(patient.regions[0])
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.region_id) == ("manifest-unreadable", patient.regions[0])
        assert finding.severity is Severity.CRITICAL

    def test_missing_manifest(self, patient):
        patient.vandal.remove(patient.regions[0], "manifest")
        assert patient.names() == ["manifest-missing"]

    def test_region_under_creation_is_no_finding(self, patient):
        patient.table.store.put(f"_mem_wal/{STRANGER}/manifest/version_hint.json", b'{"version": 1}')
        assert patient.names() == []

    def test_hole_between_manifest_versions(self, patient):
        """Whoever begins at the hint finds the newest version, so the hole does no harm; a page called it critical."""
        version = patient.manifest().version
        patient.table.store.delete(manifest_path(patient.regions[0], version - 2))
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.severity) == ("manifest-version-gap", Severity.WARNING)
        assert finding.evidence["missing"] == [[version - 2, version - 2]]
        assert patient.manifest().version == version

    def test_hole_at_which_the_search_for_the_newest_version_ends(self, patient):
        region, version = patient.regions[0], patient.manifest().version
        patient.table.store.delete(manifest_path(region, version - 1))
        patient.table.store.put(version_hint_path(manifest_directory(region)), hint_bytes(version - 2))
        (finding,) = [each for each in patient.findings() if each.finding_id.startswith("manifest-version")]
        assert (finding.finding_id, finding.severity) == ("manifest-version-hole", Severity.CRITICAL)
        assert finding.evidence["found"] == patient.manifest().version == version - 2

    @pytest.mark.req("G-12")
    def test_epoch_that_went_back(self, patient):
        patient.vandal.manifest(patient.regions[0], writer_epoch=0)
        (finding,) = patient.findings()
        assert finding.finding_id == "manifest-went-back"
        assert "writer_epoch" in finding.evidence


class TestGenerations:
    def test_failed_flush_that_was_overtaken(self, patient):
        """Generation 1 is neither merged nor recorded, while the replay pointer is beyond it (bug 2)."""
        manifest = patient.manifest()
        patient.vandal.manifest(patient.regions[0], flushed_generations=manifest.flushed_generations[1:])
        (finding,) = patient.findings()
        assert finding.finding_id == "generation-hole"
        assert finding.evidence["missing"] == [1]
        assert finding.evidence["unrecorded_directories"] == [manifest.flushed_generations[0].path]

    def test_drained_generation_is_no_hole(self, patient):
        patient.admin().run(MergeRequest())
        manifest = patient.manifest()
        patient.vandal.manifest(patient.regions[0], flushed_generations=manifest.flushed_generations[1:])
        assert patient.names() == []

    def test_directory_that_is_gone(self, patient):
        path = patient.manifest().flushed_generations[1].path
        patient.vandal.remove(patient.regions[0], path)
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.evidence["generation"]) == ("generation-missing", 2)

    def test_dataset_that_does_not_open(self, patient):
        region, path = patient.regions[0], patient.manifest().flushed_generations[0].path
        for info in list(patient.table.store.list_objects(f"{generation_path(region, path)}/_versions")):
            patient.table.store.put(info.path, b"rubbish")
        (finding,) = patient.findings()
        assert finding.finding_id == "generation-damaged"
        assert finding.evidence["files"]

    def test_data_file_that_is_gone(self, patient):
        region, path = patient.regions[0], patient.manifest().flushed_generations[0].path
        assert patient.vandal.remove(region, f"{path}/data")
        (finding,) = patient.findings()
        assert finding.finding_id == "generation-damaged"
        assert list(finding.evidence["files"].values()) == ["it is missing"]


class TestWal:
    def test_hole_above_the_replay_pointer(self, patient):
        region = patient.regions[0]
        last = patient.vandal.wal_ids(region, patient.suffix)[-1]
        patient.vandal.copy_wal_entry(region, (last, patient.suffix), (last + 2, patient.suffix))
        for found in (patient.findings(), patient.admin().health().findings):
            (finding,) = found
            assert finding.finding_id == "wal-hole"
            assert finding.evidence["missing"] == [[last + 1, last + 1]]
            assert finding.evidence["newest_entry"] == last + 2

    def test_entry_that_was_seen_and_is_gone(self, patient):
        manifest = patient.manifest()
        patient.vandal.manifest(patient.regions[0], wal_id_last_seen=manifest.wal_id_last_seen + 2)
        (finding,) = patient.findings()
        assert finding.finding_id == "wal-hole"

    @pytest.mark.parametrize(("damage", "contents"), [("zeroed", False), ("empty", False), ("flipped", True)])
    def test_unflushed_entry_that_cannot_be_replayed(self, patient, damage, contents):
        region = patient.regions[0]
        with RegionWriter.open(patient.table, region) as writer:
            entry = writer.put(people(*range(100))).wal_id
            writer.put(people(1))
        path = Path(patient.table.uri) / wal_entry_path(region, entry, patient.suffix)
        damage_file(path, damage)
        report = patient.admin().doctor(contents=contents)
        [finding] = [each for each in report.findings if each.severity is Severity.CRITICAL]
        assert finding.finding_id == "wal-entry-damaged"
        assert list(finding.evidence["entries"]) == [str(entry)]
        assert finding.command == f"memwal repair {patient.table.uri} --region {region}"

    def test_flushed_entries_that_were_collected_are_no_hole(self, native):
        native.vandal.remove(native.regions[0], f"wal/{wal_entry_name(1, native.suffix)}")
        assert native.names() == []

    def test_wal_without_even_its_end(self, native):
        native.vandal.remove(native.regions[0], "wal")
        assert native.names() == ["wal-end-gone"]

    def test_two_codecs_in_one_wal(self, patient):
        region = patient.regions[0]
        last = patient.vandal.wal_ids(region, patient.suffix)[-1]
        other = ARROW_WAL_SUFFIX if patient.suffix == LANCE_WAL_SUFFIX else LANCE_WAL_SUFFIX
        patient.vandal.copy_wal_entry(region, (last, patient.suffix), (last + 1, other))
        # A region of pylance's that got an entry of ours is open to pylance, too.
        expected = {"wal-codecs-mixed"} | ({"region-not-sealed"} if patient.suffix == ARROW_WAL_SUFFIX else set())
        assert set(patient.names()) == expected

    def test_lance_codec_open_to_pylances_writers(self, ours):
        ours.vandal.manifest(ours.regions[0], status=RegionStatus.ACTIVE)
        assert ours.names() == ["region-not-sealed"]

    def test_rows_that_wait_for_their_flush_for_long(self, patient):
        """A writer whose closing failed leaves durable rows that no flush will ever take (bug 42)."""
        region = patient.regions[0]
        if patient.suffix == LANCE_WAL_SUFFIX:
            with RegionWriter.open(patient.table, region) as writer:
                row = lance.dataset(
                    f"{patient.table.uri}/_mem_wal/{region}/{patient.manifest().flushed_generations[0].path}"
                )
                writer.put(row.to_table(columns=["id", "name", "score"]).slice(0, 1))
        else:
            last = patient.vandal.wal_ids(region, patient.suffix)[-1]
            patient.vandal.copy_wal_entry(region, (last, patient.suffix), (last + 1, patient.suffix))
        assert patient.names() == []
        (finding,) = patient.findings(later_s=7200)
        assert (finding.finding_id, finding.region_id) == ("wal-lag", region)
        assert finding.severity is Severity.CRITICAL
        (earlier,) = patient.findings(later_s=1800)
        assert earlier.severity is Severity.WARNING

    def test_fence_of_pylances_writer_is_no_unflushed_row(self, native):
        write_native_generations(native.table.uri, native.regions[0], [[]])
        assert native.names(later_s=7200) == []


class TestProgress:
    def test_merged_beyond_what_was_flushed(self, patient):
        region = patient.regions[0]
        patient.vandal.details(lambda old: replace(old, merged_generations=MappingProxyType({region: 3})))
        assert patient.names() == ["progress-ahead"]

    def test_progress_of_a_region_that_does_not_exist(self, patient):
        """pylance accepts marks for regions that nobody made (bug 5)."""
        patient.vandal.details(lambda old: replace(old, merged_generations=MappingProxyType({STRANGER: 1})))
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.region_id) == ("progress-of-unknown-region", STRANGER)

    def test_table_restored_to_before_a_merge(self, patient):
        """The table went back and its regions did not (bug 31)."""
        before = patient.table.dataset().version
        patient.admin().run(MergeRequest())
        lance.dataset(patient.table.uri, version=before).restore()
        findings = patient.findings()
        assert {finding.finding_id for finding in findings} == {"progress-went-back"}
        assert [finding.evidence["was"] for finding in findings] == [2, 2]
        with pytest.raises(FrozenError):
            patient.admin().run(MergeRequest())
        assert set(patient.names()) == {"progress-went-back", "table-frozen"}
        patient.admin().thaw(Decision(Choice.MERGE_AGAIN, "someone"))
        patient.admin().run(MergeRequest())
        assert patient.names() == []

    def test_progress_below_what_a_finished_merge_recorded(self, patient):
        """The record remembers what the table's own versions no longer can."""
        memory = Memory(progress={patient.regions[0]: 2})
        patient.admin().opened.freezes.update(lambda record: replace(record, memory=memory))
        (finding,) = patient.findings()
        assert finding.finding_id == "progress-went-back"
        assert finding.evidence["according_to"] == "the maintenance record"

    def test_index_gone_while_regions_exist(self, patient):
        lance.write_dataset(people(1, 2), patient.table.uri, mode="overwrite")
        (finding,) = patient.findings()
        assert finding.finding_id == "index-gone"
        assert finding.evidence["versions_with_index"]

    def test_index_that_claims_more_than_is_merged(self, patient):
        region = patient.regions[0]
        patient.vandal.details(
            lambda old: replace(old, index_catchup=MappingProxyType({"score_idx": MappingProxyType({region: 1})}))
        )
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.evidence["index"]) == ("catchup-ahead", "score_idx")

        # Catch-up never lowers what is recorded.
        assert command_for(finding, "t") == "memwal merge t"
        Table.open(patient.table.uri).run(MergeRequest())
        assert "catchup-ahead" not in patient.names()

    def test_index_that_cannot_be_read(self, patient):
        patient.vandal.index_payload(b"\x4a\xff")
        assert patient.names() == ["table-unreadable"]


class TestIdentity:
    @pytest.mark.parametrize("spec_id", [77])
    def test_region_of_a_spec_that_the_table_does_not_have(self, patient, spec_id):
        """An id that no spec has is an error, and 0 is no wildcard (bug 43)."""
        patient.vandal.manifest(patient.regions[0], region_spec_id=spec_id)
        (finding,) = patient.findings()
        assert finding.finding_id == "region-spec-unknown"
        assert finding.evidence["known"] == [1]

    def test_region_made_by_hand_that_has_values_of_a_spec(self, ours):
        ours.vandal.manifest(ours.regions[0], region_spec_id=0)
        assert ours.names() == ["region-spec-unknown"]

    def test_region_made_by_hand_is_fine(self, native):
        native.vandal.manifest(native.regions[0], region_spec_id=0)
        assert native.names() == []

    def test_values_that_do_not_fit_their_spec(self, ours):
        ours.vandal.manifest(ours.regions[0], region_field_values=MappingProxyType({"nonsense": b"1"}))
        assert ours.names() == ["region-spec-unknown"]

    def test_two_regions_of_one_value(self, ours):
        manifest = ours.manifest()
        ours.manifests.create(
            STRANGER,
            region_spec_id=manifest.region_spec_id,
            region_field_values=manifest.region_field_values,
            status=RegionStatus.SEALED,
        )
        (finding,) = ours.findings()
        assert finding.finding_id == "region-value-duplicate"
        assert finding.evidence["regions"] == sorted([str(manifest.region_id), str(STRANGER)])

    def test_one_key_in_two_regions(self, native):
        write_native_generations(native.table.uri, native_region_id(2), [[Put(people(105, 500))]])
        (finding,) = native.findings()
        assert finding.finding_id == "key-in-two-regions"
        assert finding.evidence["examples"] == [{"id": "105"}]
        assert finding.evidence["regions"] == [str(native_region_id(1)), str(native_region_id(2))]

    def test_shared_key_among_many_is_found_although_only_a_few_are_sampled(self, tmp_path):
        uri = str(tmp_path / "t")
        table = make_people_table(uri)
        write_native_generations(uri, native_region_id(1), [[Put(people(*range(20_000)))]])
        write_native_generations(uri, native_region_id(2), [[Put(people(*range(10_000, 40_000)))]])
        (finding,) = Patient(table, ARROW_WAL_SUFFIX).findings(doctor=DoctorSettings(sample_keys=100))
        assert finding.finding_id == "key-in-two-regions"
        assert finding.evidence["sampled_keys"] < 200

    def test_sampling_can_be_switched_off(self, native):
        write_native_generations(native.table.uri, native_region_id(2), [[Put(people(105))]])
        assert native.names(doctor=DoctorSettings(sample_keys=0)) == []

    def test_row_in_a_region_that_its_spec_does_not_send_it_to(self, ours):
        # Among forty new keys some belong to the other bucket.
        with RegionWriter.open(ours.table, ours.regions[0]) as writer:
            writer.put(people(*range(10_000, 10_040)))
            writer.flush()
        (finding,) = ours.findings()
        assert (finding.finding_id, finding.region_id) == ("row-in-wrong-region", ours.regions[0])
        assert len(finding.evidence["rows_belong_to"]) == 1


class TestSpaceAndJobs:
    def test_directory_that_nobody_records(self, patient):
        region, path = patient.regions[0], patient.manifest().flushed_generations[0].path
        patient.vandal.copy_directory(region, path, "deadbeef_gen_9")
        assert patient.names() == []
        (finding,) = patient.findings(later_s=30 * 86_400)
        assert finding.finding_id == "orphan-bytes"
        assert finding.evidence["directories"] == ["deadbeef_gen_9"]
        assert finding.severity is Severity.WARNING
        (few,) = patient.findings(later_s=30 * 86_400, doctor=DoctorSettings(orphan_share=0.9))
        assert few.severity is Severity.INFO

    def test_name_that_nobody_knows(self, patient):
        patient.table.store.put("_mem_wal/lost+found/x", b"")
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.severity) == ("unknown-directory", Severity.INFO)

    def test_region_that_is_born_while_the_doctor_looks_is_no_stranger(self, patient, monkeypatch):
        known = ManifestStore.region_ids
        monkeypatch.setattr(ManifestStore, "region_ids", lambda manifests: known(manifests)[1:])
        assert patient.names() == []

    def test_job_that_keeps_failing(self, patient):
        insight = patient.admin().opened
        for _ in range(3):
            run = insight.new_run(JobKey("merge"), "airflow")
            insight.ledger.end(run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError"))
        (finding,) = patient.findings()
        assert (finding.finding_id, finding.evidence["failures"]) == ("job-failures", 3)


class TestLegacy:
    def payload(self, *states, wal_location="s3://bucket/wal"):
        kind = legacy_pb.MemWalIndexDetails
        ids = legacy_pb.U64Segment(range=legacy_pb.U64Segment.Range(start=0, end=10)).SerializeToString()
        entries = [
            kind.MemWal(
                id=kind.MemWalId(region="orders", generation=number),
                state=state,
                mem_table_location="memory://node-1",
                wal_location=wal_location,
                wal_entries=ids,
                owner_id="node-1",
                last_updated_dataset_version=1,
            )
            for number, state in enumerate(states, start=3)
        ]
        return kind(mem_wal_list=entries).SerializeToString()

    def table(self, tmp_path, *payloads):
        table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
        patient = Patient(table, LANCE_WAL_SUFFIX)
        # pylance refuses to commit to such a table, so the versions are made first.
        versions = [table.dataset().version]
        for number in range(1, len(payloads)):
            lance.dataset(table.uri).update_config({"round": str(number)})
            versions.append(table.dataset().version)
        for version, payload in zip(versions, payloads, strict=True):
            patient.vandal.index_payload(payload, version)
        return patient

    @pytest.mark.req("LEG-07", "LEG-13", "LEG-16", "LEG-29")
    def test_early_index_is_recognised_and_shown_and_stays_as_it_is(self, tmp_path):
        payload = self.payload(3, 2, 1, 0)
        patient = self.table(tmp_path, payload)
        report = patient.admin().doctor()
        (finding,) = report.findings
        assert (finding.finding_id, finding.evidence["states"]) == (
            "legacy-index",
            {"MERGED": 1, "FLUSHED": 1, "SEALED": 1, "OPEN": 1},
        )
        shown = report.to_dict()["legacy"]
        assert [entry["state"] for entry in shown] == ["MERGED", "FLUSHED", "SEALED", "OPEN"]
        assert shown[0]["mem_table_location"] == "memory://node-1"
        assert patient.table.state().entry.payload == payload

    @pytest.mark.req("LEG-15")
    def test_two_open_generations_are_reported(self, tmp_path):
        patient = self.table(tmp_path, self.payload(0, 0))
        assert sorted(patient.names()) == ["legacy-contradiction", "legacy-index"]

    @pytest.mark.req("LEG-12", "LEG-17")
    def test_changes_between_table_versions_are_checked(self, tmp_path):
        patient = self.table(tmp_path, self.payload(2, 0), self.payload(1, 0, wal_location="s3://elsewhere"))
        problems = [f.evidence["problem"] for f in patient.findings() if f.finding_id == "legacy-contradiction"]
        assert len([text for text in problems if "WAL location" in text]) == 2
        assert len([text for text in problems if "went from FLUSHED to SEALED" in text]) == 1

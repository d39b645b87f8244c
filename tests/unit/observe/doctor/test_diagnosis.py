"""Looking twice, ordering findings, and what only values can show."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memwal_core.base_table.indexes.partitions import PartitionSizes, imbalance
from memwal_core.ids import IdSource
from memwal_core.jobs.readability.files import FileProblem
from memwal_core.jobs.readability.indexes import IndexFiles
from memwal_core.observe.doctor import CHECKS, Examination, diagnose, look_twice
from memwal_core.observe.doctor.examination import ExaminedRegion, ObservedGeneration
from memwal_core.observe.findings import Severity
from memwal_core.observe.health import Health
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.settings import DoctorSettings
from memwal_core.settings.status import StatusSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def region(**values):
    region_id = IdSource().region_id()
    manifest = RegionManifest(region_id, current_generation=2, flushed_generations=(FlushedGeneration(1, "a_gen_1"),))
    observed = ExaminedRegion(
        region_id=region_id,
        manifest=manifest,
        problem=None,
        manifests={1: NOW},
        history=(manifest,),
        wal={},
        directories=(),
        size_bytes=0,
        generations=(ObservedGeneration(1, "a_gen_1", exists=True),),
    )
    return replace(observed, **values)


def seen(*regions, **values):
    return Examination("t", NOW, None, None, (), tuple(regions), (), (), **values)


class Glances:
    """Shows one examination after the other."""

    def __init__(self, *examinations):
        self.left = list(examinations)

    def examine(self):
        return self.left.pop(0)


GONE = (ObservedGeneration(1, "a_gen_1", exists=False),)


def test_what_the_second_look_does_not_confirm_is_not_reported():
    """A generation that is drained and deleted between two requests looks lost for a moment."""
    before = region(generations=GONE)
    after = replace(before, generations=())
    last, findings = look_twice(Glances(seen(before), seen(after)))
    assert findings == ()
    assert last.regions == (after,)


def test_what_the_second_look_shows_for_the_first_time_is_left_to_the_next_examination():
    calm, broken = region(generations=GONE), region(generations=GONE)
    glances = Glances(seen(calm), seen(calm, broken))
    assert [finding.region_id for finding in look_twice(glances)[1]] == [calm.region_id]


def test_healthy_table_is_looked_at_once():
    glances = Glances(seen(region()), None)
    assert look_twice(glances)[1] == ()
    assert len(glances.left) == 1


def test_findings_come_most_urgent_first_and_print_as_json():
    patient = replace(
        seen(region(generations=GONE)), strangers=("lost+found",), indexes=IndexFiles((PartitionSizes("v", (100, 1)),))
    )
    last, findings = look_twice(Glances(patient, patient))
    assert [finding.severity for finding in findings] == [Severity.CRITICAL, Severity.INFO, Severity.INFO]
    document = json.loads(json.dumps(Health("t", findings, (), StatusSettings(), last).to_dict()))
    assert document["healthy"] is False
    assert set(document["findings"][0]) == {
        "finding", "severity", "level", "region_id", "subject", "summary", "evidence", "risk", "remedy", "runbook",
            "command",
    }  # fmt: skip


def test_every_check_is_a_rule_with_a_name_and_a_sentence():
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
    assert all(check.__doc__ for check in CHECKS)


def test_checks_find_nothing_in_a_table_without_regions():
    assert diagnose(seen()) == ()


@pytest.mark.req("T6")
def test_index_that_cannot_be_read_is_a_warning_that_names_its_files():
    problem = FileProblem("_indices/one/page_data.lance", "it ends the process")
    (finding,) = diagnose(seen(indexes=IndexFiles(problems=(("name_idx", (problem,)),))))
    assert (finding.finding_id, finding.severity) == ("index-file-damaged", Severity.WARNING)
    assert (finding.subject, finding.evidence["files"]) == ("name_idx", {problem.path: problem.cause})
    assert "drop_index" in finding.remedy


class TestImbalance:
    @pytest.mark.req("LEASE-39")
    def test_ratio_at_the_threshold_is_no_finding_and_above_it_a_proposal(self):
        threshold = DoctorSettings().retrain_imbalance_threshold
        at = seen(indexes=IndexFiles((PartitionSizes("v", (int(threshold) * 10, 10)),)), retrain_imbalance=threshold)
        above = replace(at, indexes=IndexFiles((PartitionSizes("v", (int(threshold) * 10 + 1, 10)),)))
        assert diagnose(at) == ()
        (finding,) = diagnose(above)
        assert (finding.finding_id, finding.severity) == ("index-imbalanced", Severity.INFO)
        assert "migration" in finding.remedy

    @pytest.mark.req("LEASE-40")
    def test_empty_partition_counts_as_infinitely_unbalanced(self):
        assert imbalance([5, 0]) == math.inf
        (finding,) = diagnose(seen(indexes=IndexFiles((PartitionSizes("v", (5, 0)),))))
        assert finding.evidence["imbalance"] is None
        shown = finding.to_dict()["evidence"]
        assert shown == {name: value for name, value in finding.evidence.items() if name != "imbalance"}
        json.dumps(finding.to_dict(), allow_nan=False)

    @pytest.mark.req("LEASE-40")
    @pytest.mark.parametrize("sizes", [(), (0, 0), (3,), (4, 4)])
    def test_nothing_to_compare_is_balanced(self, sizes):
        assert imbalance(sizes) == 1.0

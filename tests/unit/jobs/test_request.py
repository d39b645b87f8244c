"""Requests of jobs: what they accept, what they refuse, and how they travel as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.backup.request import BackupRequest, CopyRequest
from memwal_core.jobs.catalog import REQUESTS, parse_request, request_type
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.quality.request import QualityGate, QualityRequest, Stages
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.runner import load_job
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings.writer import Takeover
from testkit.tables.native_regions import native_region_id

REGION = native_region_id(1)
FULL: tuple[JobRequest, ...] = (
    IngestRequest(
        dry_run=True,
        sources=("a.csv", "b.csv"),
        format=SourceFormat.CSV,
        batch="21",
        stream="orders",
        order_by="at",
        delete_column="gone",
        engine=Engine.LOCAL,
        suites=("rows.json",),
        takeover=Takeover.FENCE,
        spec=2,
        options={"header": "true"},
    ),
    FlushRequest(dry_run=True, regions=(REGION,), fence=True, due_only=True),
    MergeRequest(
        dry_run=True,
        regions=(REGION, native_region_id(2)),
        max_bytes=1,
        due_only=True,
        leave_held=True,
        audited_only=True,
        suites=("names.json",),
        engine=Engine.SPARK,
    ),
    CatchupRequest(dry_run=True, indexes=("a", "b"), merge_segments=True, engine=Engine.SPARK),
    CompactRequest(dry_run=True, force=True, remove_versions=True, engine=Engine.SPARK),
    SnapshotRequest(dry_run=True, force=True, engine=Engine.SPARK),
    GcRequest(dry_run=False, regions=(REGION,), wait=True, engine=Engine.LOCAL),
    VerifyRequest(dry_run=True, engine=Engine.LOCAL, due_only=True),
    QualityRequest(
        dry_run=True, stage=Stages.BEFORE, suites=("rows.py",), since=3, docs="/docs", advisory=True, due_only=True
    ),
    MaintainRequest(
        dry_run=True,
        delete=False,
        remove_versions=False,
        ignore_pauses=True,
        checks=QualityGate.MANDATORY,
        suites=("rows.py",),
    ),
    RepairRequest(dry_run=True, regions=(REGION,), duplicates=True, accept_loss=(f"{REGION}:3",)),
    RelocateRequest(dry_run=True, reason="moved"),
    BackupRequest(dry_run=True, target="/b", target_options={"aws_region": "x"}),
    CloneRequest(dry_run=True, target="/c", target_options={"aws_region": "x"}),
)
"""One request of every job, with a value in every field that is not its default."""


def least(kind: type[JobRequest]) -> dict[str, Any]:
    """Return the values that a request cannot do without."""
    if issubclass(kind, CopyRequest):
        return {"target": "/copy"}
    return {"sources": ["a.csv"]} if kind is IngestRequest else {}


def test_every_job_and_every_field_is_tried_here() -> None:
    assert {type(request) for request in FULL} == set(REQUESTS)
    for request in FULL:
        assert set(request.to_json()) == set(type(request).model_fields)


@pytest.mark.parametrize("request_", FULL, ids=lambda each: each.info.name)
def test_request_survives_json(request_: JobRequest) -> None:
    text = json.dumps(request_.to_json())

    assert parse_request(request_.info.name, json.loads(text)) == request_


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_defaults_are_not_written_and_come_back(kind: type[JobRequest]) -> None:
    request = parse_request(kind.info.name, least(kind))

    assert request.to_json() == least(kind)
    assert type(request) is kind


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_unknown_field_is_refused_with_the_fields_there_are(kind: type[JobRequest]) -> None:
    for make in (lambda values: kind(**values), lambda values: parse_request(kind.info.name, values)):
        with pytest.raises(InvalidRequestError) as refused:
            make({**least(kind), "regionss": []})

        assert refused.value.exit_code == 2
        assert list(refused.value.facts["problems"]) == ["regionss"]
        assert refused.value.facts["fields"] == sorted(kind.model_fields)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_every_field_says_what_it_is_in_the_form(kind: type[JobRequest]) -> None:
    for name, field in kind.model_json_schema()["properties"].items():
        assert field.get("title"), name
        assert str(field.get("description", "")).endswith("."), name


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_dry_run_of_a_request_differs_in_nothing_else(kind: type[JobRequest]) -> None:
    request = next(each for each in FULL if type(each) is kind)
    planned = request.planned_only()

    assert planned.dry_run
    assert planned == type(request)(**{**dict(request), "dry_run": True})


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_request_cannot_be_changed(kind: type[JobRequest]) -> None:
    request = parse_request(kind.info.name, least(kind))

    with pytest.raises(ValidationError, match="frozen"):
        request.dry_run = not request.dry_run


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_job_of_every_request_exists(kind: type[JobRequest]) -> None:
    job = load_job(kind(**least(kind)))

    assert f"{type(job).__module__}:{type(job).__name__}" == kind.info.implementation
    assert request_type(kind.info.name) is kind


@pytest.mark.parametrize(
    ("job", "values", "field"),
    [
        ("merge", {"max_bytes": 0}, "max_bytes"),
        ("merge", {"max_bytes": 1.5}, "max_bytes"),
        ("merge", {"max_bytes": "many"}, "max_bytes"),
        ("merge", {"regions": str(REGION)}, "regions"),
        ("merge", {"regions": [7]}, "regions.0"),
        ("merge", {"due_only": "perhaps"}, "due_only"),
        ("catchup", {"indexes": [""]}, "indexes.0"),
        ("catchup", {"indexes": "vec_idx"}, "indexes"),
        ("quality", {"stage": "during"}, "stage"),
        ("quality", {"since": 0}, "since"),
        ("quality", {"suites": ["rows.txt"]}, "suites.0"),
        ("ingest", {}, "sources"),
        ("ingest", {"sources": []}, "sources"),
        ("ingest", {"sources": ["a"], "spec": 0}, "spec"),
        ("ingest", {"sources": ["a"], "stream": ""}, "stream"),
        ("ingest", {"sources": ["a"], "format": "xml"}, "format"),
        ("ingest", {"sources": ["a"], "takeover": "ask"}, "takeover"),
        ("ingest", {"sources": ["a"], "options": {"header": True}}, "options.header"),
        ("gc", {"wait": None}, "wait"),
        ("gc", {"dry_run": None}, "dry_run"),
    ],
)
def test_value_out_of_bounds_is_refused_by_its_name(job: str, values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request(job, values)

    assert field in refused.value.facts["problems"]


def test_misspelt_field_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request("merge", {"dryrun": True})

    assert refused.value.facts["problems"] == {"dryrun": "there is no such name; perhaps dry_run is meant"}


def test_argument_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        IngestRequest(sources=("day.parquet",), batch="gr\udcfcn")


def test_text_that_is_not_a_region_is_refused_with_the_text() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request("merge", {"regions": ["west"]})

    assert refused.value.facts["text"] == "west"


def test_unknown_job_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request("vacuum", {})

    assert refused.value.facts["known"] == [kind.info.name for kind in REQUESTS]


def test_job_names_are_unique() -> None:
    assert len({kind.info.name for kind in REQUESTS}) == len(REQUESTS)


@pytest.mark.parametrize(
    ("request_", "key"),
    [
        (MergeRequest(regions=(REGION,)), JobKey("merge")),
        (CatchupRequest(), JobKey("catchup")),
        (CatchupRequest(indexes=("a",)), JobKey.of_index("catchup", "a")),
        (CatchupRequest(indexes=("a", "a")), JobKey.of_index("catchup", "a")),
        (CatchupRequest(indexes=("a", "b")), JobKey("catchup")),
        (QualityRequest(), JobKey("quality", "after")),
        (QualityRequest(stage=Stages.BEFORE), JobKey("quality", "before")),
        (GcRequest(), JobKey("gc")),
    ],
)
def test_key_is_that_of_what_two_runs_would_do_twice(request_: JobRequest, key: JobKey) -> None:
    assert request_.key == key


@pytest.mark.req("GC-28")
def test_garbage_collection_only_plans_unless_deletion_is_asked_for() -> None:
    assert GcRequest().dry_run
    assert parse_request("gc", {}).dry_run
    assert [kind.info.name for kind in REQUESTS if kind(**least(kind)).dry_run] == ["gc"]


def test_scheduled_ingestion_names_its_batch_after_the_run_unless_it_has_a_name() -> None:
    unnamed, named = IngestRequest(sources=("a",)), IngestRequest(sources=("a",), batch="21")

    assert unnamed.for_run("nightly-1").batch == "nightly-1"
    assert unnamed.for_run("nightly-1") == unnamed.for_run("nightly-1")
    assert named.for_run("nightly-1") is named

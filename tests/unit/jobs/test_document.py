"""A job as one JSON document: what a process accepts, from where, and what it refuses."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.document import DOCUMENT_VARIABLE, JobDocument, handed_over, load_document, parse_job
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.spark.application import main
from testkit.tables.native_regions import native_region_id

REGION = native_region_id(1)
FULL = JobDocument(
    job="merge",
    uri="s3://bucket/table",
    request=MergeRequest(regions=(REGION,), max_bytes=5).to_json(),
    storage_options={"region": "eu-west-1"},
    holder="nightly",
    ticket="merge/table:nightly:1",
    ok_when_nothing=True,
    ok_when_blocked=True,
    ok_when_partial=True,
    report="-",
)


@pytest.fixture(autouse=True)
def no_document_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DOCUMENT_VARIABLE, raising=False)


def test_document_survives_its_text() -> None:
    assert set(json.loads(FULL.to_text())) == set(JobDocument.model_fields), "a value in every field"
    assert parse_job(FULL.to_text()) == FULL
    assert FULL.parsed() == MergeRequest(regions=(REGION,), max_bytes=5)


def test_address_alone_is_a_document_and_defaults_are_not_written() -> None:
    document = parse_job('{"uri": "t"}')

    assert json.loads(document.to_text()) == {"uri": "t"}
    assert not document.ok_when_nothing
    assert not document.ok_when_blocked


def test_document_comes_as_argument_file_standard_input_or_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.json"
    file.write_text(FULL.to_text(), encoding="utf-8")

    assert load_document(FULL.to_text()) == FULL
    assert load_document(f"@{file}") == FULL
    monkeypatch.setattr(sys, "stdin", io.StringIO(FULL.to_text()))
    assert load_document("-") == FULL
    monkeypatch.setenv(DOCUMENT_VARIABLE, FULL.to_text())
    assert load_document("") == FULL


def test_a_document_that_no_variable_can_hold_is_handed_over_as_a_file_for_this_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = JobDocument(job="merge", uri="t", request={"regions": [f"{number:036d}" for number in range(5000)]})
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={DOCUMENT_VARIABLE: document.to_text()}, check=True)

    with handed_over(document.to_text()) as text:
        subprocess.run(["/bin/true"], env={DOCUMENT_VARIABLE: text}, check=True)
        monkeypatch.setenv(DOCUMENT_VARIABLE, text)
        assert load_document("") == document
        assert stat.S_IMODE(Path(text[1:]).stat().st_mode) == 0o600

    assert not Path(text[1:]).exists()


def test_a_short_document_is_handed_over_as_it_is() -> None:
    with handed_over(FULL.to_text()) as text:
        assert text == FULL.to_text()


def test_argument_goes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DOCUMENT_VARIABLE, FULL.to_text())

    assert load_document('{"uri": "mine"}').uri == "mine"


def test_missing_document_is_refused_with_the_ways_to_give_it() -> None:
    with pytest.raises(InvalidRequestError, match=DOCUMENT_VARIABLE):
        load_document("")


def test_file_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        load_document(f"@{tmp_path}/none.json")

    assert refused.value.facts["path"] == f"{tmp_path}/none.json"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("merge it", "document"),
        ("[]", "document"),
        ("{}", "uri"),
        ('{"uri": ""}', "uri"),
        ('{"uri": "t", "regions": []}', "regions"),
        ('{"uri": "t", "request": ["force"]}', "request"),
        ('{"uri": "t", "storage_options": {"a": 1}}', "storage_options.a"),
    ],
)
def test_text_that_is_no_job_is_refused_by_the_name_of_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_job(text)

    assert list(refused.value.facts["problems"]) == [problem]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], DOCUMENT_VARIABLE),
        (["not json"], "not valid"),
        (["--uri", "t"], "quote the document"),
        (['{"uri": "t", "job": "gc"}'], "for another job"),
        (['{"uri": "/nowhere/t", "request": {"max_bytes": 0}}'], "max_bytes"),
    ],
)
def test_application_ends_with_2_and_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("merge", arguments) == 2

    complaint = capsys.readouterr().err
    assert complaint.startswith("error: ")
    assert said in complaint

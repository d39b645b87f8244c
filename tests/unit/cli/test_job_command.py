"""The commands made from requests: an option for each field, and help that says what exit codes mean."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from memwal_core.cli import job_command
from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.request import Flag, JobRequest
from memwal_core.settings.writer import Takeover
from testkit.tables.native_regions import native_region_id

ONE, TWO = native_region_id(1), native_region_id(2)
INGEST_OPTIONS = (
    *("--format", "csv", "--option", "header=true", "--option", "sep=;"),
    *("--takeover", "fence", "--batch", "21", "--order-by", "at"),
)


class _AskedError(Exception):
    """Ends a command at the moment in which it would run its job."""

    def __init__(self, request: JobRequest) -> None:
        super().__init__("asked")
        self.request = request


class _Listening:
    def run(self, request: JobRequest, **_others: object) -> None:
        raise _AskedError(request)


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_command, "open_table", lambda _uri, _options, **_how: _Listening())


def asked(*arguments: str) -> JobRequest:
    ended = CliRunner().invoke(app, list(arguments))
    assert isinstance(ended.exception, _AskedError), ended.output
    return ended.exception.request


def help_of(command: str) -> str:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│─╭╮╰╯]", " ", shown.output).split())


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["merge", "t"], MergeRequest()),
        (
            ["merge", "t", "--region", str(ONE), "--region", str(TWO), "--max-bytes", "7", "--due-only", "--dry-run"],
            MergeRequest(regions=(ONE, TWO), max_bytes=7, due_only=True, dry_run=True),
        ),
        (
            ["catchup", "t", "--index", "a", "--index", "b", "--merge-segments"],
            CatchupRequest(indexes=("a", "b"), merge_segments=True),
        ),
        (["gc", "t"], GcRequest()),
        (["gc", "t", "--dry-run"], GcRequest(dry_run=True)),
        (["gc", "t", "--yes", "--wait"], GcRequest(dry_run=False, wait=True)),
        (["quality", "t"], QualityRequest()),
        (
            ["quality", "t", "--stage", "both", "--suite", "a.py", "--suite", "b.json", "--since", "3"],
            QualityRequest(stage=Stages.BOTH, suites=("a.py", "b.json"), since=3),
        ),
        (["maintain", "t"], MaintainRequest()),
        (
            ["maintain", "t", "--keep-garbage", "--keep-versions", "--ignore-pauses"],
            MaintainRequest(delete=False, remove_versions=False, ignore_pauses=True),
        ),
        (
            ["ingest", "t", "a.csv", "b.csv", *INGEST_OPTIONS],
            IngestRequest(
                sources=("a.csv", "b.csv"),
                format=SourceFormat.CSV,
                options={"header": "true", "sep": ";"},
                takeover=Takeover.FENCE,
                batch="21",
                order_by="at",
            ),
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_options_become_the_request(arguments: list[str], request_: JobRequest) -> None:
    assert asked(*arguments) == request_


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_every_field_is_an_option_with_its_description_and_lists_are_repeatable(kind: type[JobRequest]) -> None:
    shown = help_of(kind.info.name)

    for name, field in kind.model_fields.items():
        flag = next((each for each in field.metadata if isinstance(each, Flag)), Flag(f"--{name.replace('_', '-')}"))
        expected = flag.metavar if flag.is_argument else flag.name.partition("/")[0]
        assert expected in shown
        assert "Annotated" not in shown
        assert " ".join((field.description or "").split()) in shown
        if isinstance(field.get_default(call_default_factory=True), tuple | dict):
            assert f"{field.description} Repeatable." in shown


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda each: each.info.name)
def test_help_says_what_the_job_does_and_names_every_exit_code(kind: type[JobRequest]) -> None:
    shown = help_of(kind.info.name)

    assert (kind.__doc__ or "").partition("\n")[0] in shown
    assert f"Exit codes: 0 done or planned, 2 bad input, {kind.info.exit_codes}." in shown
    assert "Attributes:" not in shown
    for code in (3, 4, 5):
        assert f"{code} " in kind.info.exit_codes
    assert ("8 the table is frozen" in kind.info.exit_codes) != kind.info.acts_on_frozen or kind is MaintainRequest


@pytest.mark.parametrize(
    "arguments",
    [
        ["merge", "t", "--region", "west"],
        ["merge", "t", "--max-bytes", "0"],
        ["quality", "t", "--suite", "rows.txt"],
        ["ingest", "t", "a.csv", "--option", "no-equals-sign"],
    ],
)
def test_value_that_does_not_fit_is_refused_before_the_table_is_opened(arguments: list[str]) -> None:
    ended = CliRunner().invoke(app, arguments)

    assert isinstance(ended.exception, InvalidRequestError)


@pytest.mark.parametrize(
    "arguments", [["ingest", "t"], ["merge"], ["merge", "t", "--no-due-only"], ["gc", "t", "--keep"]]
)
def test_command_line_that_cannot_be_read_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2

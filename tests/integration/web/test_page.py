"""The status page over real tables, without Airflow."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, params

from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.format.paths import quality_result_path
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.observe.findings import Level
from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.region.quarantine import Quarantined
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import PageSettings
from memwal_core.table import Table
from memwal_core.web import PageSource, create_app
from memwal_core.web.app import RUNNABLE, TAKES_REGIONS
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people, quality_of

Get = Callable[[str], httpx.Response]


class Listed:
    """Tables of a list, opened without connections."""

    def __init__(self, tables: Sequence[RegisteredTable] | None) -> None:
        self._tables = tables

    def registry(self) -> Registry | None:
        return Registry(tables=tuple(self._tables)) if self._tables is not None else None

    def open(self, table: RegisteredTable) -> Table:
        return Table.open(table.uri)


class Addresses(HTMLParser):
    """Collects every address that a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value for name, value in attrs if name in ("href", "src", "action") and value]


def patient(source: PageSource, dependencies: Sequence[params.Depends] = ()) -> FastAPI:
    """Make a page that waits for its tables however slow the machine is."""
    return create_app(source, dependencies, PageSettings(patience_s=300, deadline_s=300))


def getter(app: Any, prefix: str = "") -> Get:
    def get(path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
                return await client.get(prefix + path)

        return asyncio.run(ask())

    return get


def _table(path: Path, *, flushes: int = 1) -> BaseTable:
    table = make_people_table(str(path), rows=people(*range(50)), buckets=2)
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    with TableWriter.open(table) as writer:
        for number in range(flushes):
            writer.put(people(*range(number * 10, number * 10 + 40)))
            writer.flush()
    return table


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseTable]:
    """One table that is merged, one that is far behind, one whose second generation is not recorded."""
    root = tmp_path_factory.mktemp("tables")
    merged, behind = _table(root / "merged.lance"), _table(root / "behind.lance", flushes=40)
    Table.open(merged.uri).run(MergeRequest())
    admin = Table.open(behind.uri)
    with admin.opened.ledger.run(admin.opened.new_run(JobKey("merge"), "a <b>run</b>")) as run:
        run.verdict = "<script>alert(1)</script>"
    return {"merged": merged, "behind": behind}


@pytest.fixture(scope="module")
def app(tables: dict[str, BaseTable]) -> FastAPI:
    entries = [RegisteredTable(name=name, uri=table.uri) for name, table in tables.items()]
    return patient(Listed([*entries, RegisteredTable(name="gone", uri="/nowhere/<i>gone</i>.lance")]))


@pytest.fixture(scope="module")
def get(app: FastAPI) -> Get:
    return getter(app)


def test_worst_table_comes_first_and_one_that_cannot_be_read_is_shown(get: Get) -> None:
    page = get("/")

    assert page.status_code == 200
    assert re.findall(r'<a href="table\?name=(\w+)">', page.text) == ["gone", "behind", "merged"]
    assert "there is no table" in page.text or "does not exist" in page.text


def test_table_shows_regions_indexes_garbage_and_runs(get: Get, tables: dict[str, BaseTable]) -> None:
    page = get("/table?name=behind").text

    for region in Table.open(tables["behind"].uri).status().regions:
        assert str(region.region_id) in page
        assert f"generations 1 to {region.merge_lag_generations}: flushed" in page
    assert "name_idx" in page
    assert "stays: not merged" in page
    assert "<b>merge</b>" in page


def test_index_that_is_behind_the_merge_is_shown_with_its_lag(get: Get) -> None:
    page = get("/table?name=merged").text

    assert "name_idx 1" in page
    assert "behind: rows are not indexed" in page
    assert "an index has not caught up" in page


def test_signals_that_need_somebody_are_shown_with_their_runbooks(get: Get) -> None:
    page = get("/table?name=behind").text

    assert re.search(r'<p class="sentence">40 flushed MemTables of region [0-9a-f]{8} wait for a merge[^<]+</p>', page)
    assert "Next: run <code>memwal merge</code>." in page
    assert "Too many flushed MemTables wait in one region</h2>" in page  # its runbook, beside it
    assert "wal-lag" not in page.replace("wal-lag.md", "")  # nothing is said about what is well


def test_what_is_wrong_is_said_without_a_click(tmp_path: Path, get: Get) -> None:
    table = _table(tmp_path / "odd.lance")
    table.store.put(quality_result_path("after"), b'{"results": 7}')
    odd = getter(patient(Listed([RegisteredTable(name="odd", uri=table.uri)])))

    said = "<p{}>1 check of the base table failed (the newest report cannot be read); rows may be wrong or lost.</p>"
    assert said.format(' class="sentence"') in odd("/table?name=odd").text
    assert said.format("") in odd("/").text
    assert re.search("<p>40 flushed MemTables of region [0-9a-f]{8} wait for a merge", get("/").text)


def test_region_says_why_each_job_acts_or_not(get: Get, tables: dict[str, BaseTable]) -> None:
    region = Table.open(tables["behind"].uri).status().regions[0].region_id

    page = get(f"/region?table=behind&region={region}").text

    for job in ("merge", "catchup", "gc", "snapshot"):
        assert f"<dt>{job} " in page
    assert "would act" in page
    assert "<dt>Writer epoch</dt><dd>1</dd>" in page
    assert "<dt>Waits for merge</dt><dd>40 generations" in page
    assert "generations 1 to 40: flushed" in page


@pytest.mark.parametrize("dag", RUNNABLE)
def test_form_of_each_job_is_filled_in_for_its_table(get: Get, tables: dict[str, BaseTable], dag: str) -> None:
    region = str(Table.open(tables["behind"].uri).status().regions[0].region_id)

    page = get(f"/run?dag={dag}&table=behind&region={region}").text

    assert f'data-dag="{dag}"' in page
    [filled] = re.findall(r'data-filled="([^"]*)"', page)
    expected: dict[str, object] = {"tables": ["behind"]} if dag == "memwal_maintain" else {"table": "behind"}
    assert json.loads(unescape(filled)) == {**expected, **({"regions": [region]} if dag in TAKES_REGIONS else {})}


def test_every_dag_is_offered_and_those_of_a_region_on_its_page(get: Get, tables: dict[str, BaseTable]) -> None:
    region = Table.open(tables["behind"].uri).status().regions[0].region_id
    offered = re.compile(r'href="run\?dag=(\w+)&')

    assert set(offered.findall(get("/table?name=behind").text)) == set(RUNNABLE)
    assert set(offered.findall(get(f"/region?table=behind&region={region}").text)) == TAKES_REGIONS
    # An ingestion needs sources, which the page does not know.
    with_dags = [request for request in REQUESTS if not request.info.by_hand]
    assert set(RUNNABLE) == {f"memwal_{request.info.name}" for request in with_dags} - {"memwal_ingest"}
    with_regions = {f"memwal_{request.info.name}" for request in with_dags if "regions" in request.model_fields}
    assert with_regions == TAKES_REGIONS


def test_table_without_checks_says_so(get: Get) -> None:
    page = get("/table?name=merged").text

    assert "Nothing is quarantined." in page
    assert page.count(": never ran") == 2
    assert re.search(r"<dt>Not measured</dt><dd>[^<]*failed checks", page)


def test_newest_checks_and_holds_are_shown_and_a_failed_one_is_danger(tmp_path: Path) -> None:
    table = _table(tmp_path / "my checked.lance")
    get = getter(patient(Listed([RegisteredTable(name="checked", uri=table.uri)])))
    region = Table.open(table.uri).status().regions[0].region_id
    quality = quality_of(Table.open(table.uri))
    quality.quarantine.add(Quarantined(region, 1, ("key_not_null: 3 of 9 rows <b>",), "2026-01-02T03:04:05+00:00"))
    passed = CheckResult(Check.KEY_UNIQUE, Result.PASSED, "version 3", "met")
    failed = CheckResult(Check.ROW_ARITHMETIC, Result.FAILED, "versions 2 to 3", "rows 5, expected_rows 6", 1)
    now = table.clock.now().isoformat()
    for stage, results in ((Stage.BEFORE, (passed,)), (Stage.AFTER, (passed, failed))):
        report = QualityReport(table.uri, stage, JobOutcome.DONE, 3, results, (), now, 1.0, "s3://docs/checked")
        quality.record(report)

    page = get("/table?name=checked").text

    assert 'class="quarantined"><title>generation 1: quarantined</title>' in page
    assert "Audit before a merge</b>: 1 passed, version 3" in page
    assert "Checks after a merge</b>: 1 of 2 failed, version 3" in page
    assert page.index("row arithmetic") < page.rindex("key unique")  # what failed comes first
    assert "rows 5, expected_rows 6" in page
    assert "s3://docs/checked" in page
    assert "3 of 9 rows &lt;b&gt;" in page
    assert f"memwal checks &#39;{table.uri}&#39; --release {region}:1" in page
    assert "Evidence: check-failed" in page  # why the score is 0
    assert "<b>0</b>" in page
    assert re.search(r'<li class="\w+"><b>quarantined-generations</b>', page)
    assert "1 check of the base table failed (version 3)" in get("/").text


def test_report_that_cannot_be_read_counts_as_failed(tmp_path: Path) -> None:
    table = _table(tmp_path / "odd.lance")
    table.store.put(quality_result_path("after"), b'{"results": 7}')

    page = getter(patient(Listed([RegisteredTable(name="odd", uri=table.uri)])))("/table?name=odd").text

    assert "its report cannot be read" in page
    assert "<b>0</b>" in page


@pytest.mark.parametrize("began", ["/2026-01-01T00:00:03.250000Z", ""])
def test_run_of_airflow_leads_to_its_page(tmp_path: Path, began: str) -> None:
    table = _table(tmp_path / "run.lance")
    insight = Table.open(table.uri).opened
    with insight.ledger.run(insight.new_run(JobKey("gc"), f"memwal_gc/manual__2026-01-01T00:00:00+00:00{began}")):
        pass

    page = getter(patient(Listed([RegisteredTable(name="run", uri=table.uri)])))("/table?name=run").text

    assert 'href="../dags/memwal_gc/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00" data-airflow' in page
    assert ">memwal_gc/manual__2026-01-01T00:00:00+00:00<" in page


def test_everything_that_is_stored_is_escaped(get: Get) -> None:
    for path in ("/", "/table?name=behind", "/table?name=gone"):
        page = get(path).text
        assert "<script>alert" not in page
        assert "<b>run</b>" not in page
        assert "<i>gone" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in get("/table?name=behind").text


@pytest.mark.parametrize(
    "path", ["/", "/table?name=behind", "/region?table=behind&region={region}", "/run?dag=memwal_gc&table=behind"]
)
def test_page_works_behind_any_prefix_because_every_address_is_relative(
    app: FastAPI, tables: dict[str, BaseTable], path: str
) -> None:
    outer = FastAPI()
    outer.mount("/some/prefix/memwal", app)
    region = Table.open(tables["behind"].uri).status().regions[0].region_id
    answer = getter(outer, "/some/prefix/memwal")(path.format(region=region))

    assert answer.status_code == 200
    addresses = Addresses(answer.text).found
    assert len(addresses) > 3
    assert not [address for address in addresses if address.startswith("/") or "://" in address]
    for asset in ("page.css", "page.js", "run.js"):
        assert getter(outer, "/some/prefix/memwal")(f"/static/{asset}").status_code == 200


def test_page_forbids_foreign_and_inline_scripts(get: Get) -> None:
    answer = get("/table?name=behind")

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "style=" not in answer.text
    assert "onclick" not in answer.text


def test_page_has_a_skip_link_headings_and_focusable_details(get: Get) -> None:
    page = get("/table?name=behind").text

    assert '<a class="skip" href="#main">' in page
    assert '<html lang="en">' in page
    tags = Addresses(page).tags
    assert tags.count("h1") == 1
    assert tags.count("summary") == tags.count("details")
    assert page.count('role="img" aria-label="') == page.count("<svg")


@pytest.mark.parametrize(
    "path",
    [
        "/table?name=unknown",
        "/region?table=unknown&region=1",
        "/run?dag=memwal_merge&table=unknown",
        "/run?dag=other&table=behind",
        "/region?table=behind&region=7",
        "/region?table=behind&region=00000000-0000-4000-8000-000000000000",
        "/region?table=behind",
        "/nowhere",
        "/static/nowhere.css",
    ],
)
def test_what_is_unknown_is_not_found_and_says_so_under_the_policy(get: Get, path: str) -> None:
    answer = get(path)

    assert answer.status_code == 404
    assert "This cannot be shown" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_styles_come_under_the_policy_too(get: Get) -> None:
    assert "default-src 'none'" in get("/static/page.css").headers["content-security-policy"]


class Broken(Listed):
    """Fails as only code of others does, and says a secret."""

    def registry(self) -> Registry | None:
        raise RuntimeError("the-secret")


class BrokenTable(Listed):
    """Fails so for a table."""

    def open(self, table: RegisteredTable) -> Table:
        raise RuntimeError("the-secret")


def test_a_failure_of_another_kind_is_a_page_without_what_it_says() -> None:
    app = patient(Broken([RegisteredTable(name="odd", uri="/x")]))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return await client.get("/table?name=odd")

    answer = asyncio.run(ask())

    assert answer.status_code == 500
    assert "RuntimeError" in answer.text
    assert "the-secret" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.req("T6")
def test_a_failure_of_another_kind_hides_no_other_table() -> None:
    answer = getter(
        patient(BrokenTable([RegisteredTable(name="odd", uri="/x"), RegisteredTable(name="even", uri="/y")]))
    )("/")

    assert answer.status_code == 200
    assert "odd" in answer.text
    assert "even" in answer.text
    assert "RuntimeError" in answer.text
    assert "the-secret" not in answer.text


def test_pages_answer_head(app: FastAPI) -> None:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
            return await client.head("/")

    answer = asyncio.run(ask())

    assert (answer.status_code, answer.content) == (200, b"")


def test_a_registry_without_bounds_is_said_loudly(tables: dict[str, BaseTable]) -> None:
    class Open(Listed):
        def registry(self) -> Registry | None:
            return Registry(single_user=True)

    assert "Single user:" in getter(patient(Open([])))("/").text
    assert "Single user:" not in getter(patient(Listed([])))("/").text


@pytest.mark.parametrize("path", ["/", "/table?name=merged", "/region?table=merged&region=1", "/run?dag=x&table=y"])
def test_every_page_asks_for_permission(path: str) -> None:
    def refuse() -> None:
        raise HTTPException(401, "who are you?")

    get = getter(patient(Listed([]), [Depends(refuse)]))

    assert get(path).status_code == 401
    assert get("/openapi.json").status_code == 404
    assert get("/docs").status_code == 404


def test_damage_that_only_a_deep_look_sees_is_red_on_the_page(tmp_path: Path) -> None:
    table = _table(tmp_path / "lost.lance")
    [first, *_] = (Path(table.uri) / "data").glob("*.lance")
    entry = RegisteredTable(name="lost", uri=table.uri)

    def page(deep_s: float) -> Get:
        settings = PageSettings(patience_s=300, deadline_s=300, fresh_s=0, deep_s=deep_s)
        return getter(create_app(Listed([entry]), (), settings))

    first.rename(tmp_path / "elsewhere")
    quick, deep = page(0), page(5)
    told = "Files of the base table are missing or damaged"

    assert "Every file examined</dt><dd>not yet" in deep("/table?name=lost").text
    _until(lambda: "examined</dt><dd>not yet" not in deep("/table?name=lost").text)
    for path in ("/", "/table?name=lost"):
        assert told in deep(path).text
        assert told not in quick(path).text
    (tmp_path / "elsewhere").rename(first)
    _until(lambda: told not in deep("/table?name=lost").text)


def test_bytes_that_only_a_deep_look_counts_are_red_in_the_fleet(tmp_path: Path) -> None:
    """`status --check` paged for such a table, and the overview called it fine."""
    table = _table(tmp_path / "kept.lance")
    table.dataset().tags.create("before", table.dataset().version)
    Table.open(table.uri).run(MergeRequest())
    then = time.time() - 30 * 86_400
    for path in Path(table.uri).rglob("*"):
        os.utime(path, (then, then))
    entry = RegisteredTable(name="kept", uri=table.uri)
    settings = PageSettings(patience_s=300, deadline_s=300, fresh_s=0, deep_s=5)
    get = getter(create_app(Listed([entry]), (), settings))
    told = "of the table&#39;s bytes are old and stay until somebody acts"

    assert Table.open(table.uri).health().level is Level.PAGE
    get("/")
    _until(lambda: told in get("/").text)
    assert "<b>1</b> need attention" in get("/").text
    table.dataset().tags.delete("before")
    Table.open(table.uri).run(CompactRequest(remove_versions=True))
    Table.open(table.uri).run(GcRequest(dry_run=False))
    _until(lambda: told not in get("/").text)


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.1)


def test_missing_registry_is_explained() -> None:
    assert "MAINTENANCE_TABLES" in getter(patient(Listed(None)))("/").text
    assert "names no table" in getter(patient(Listed([])))("/").text


def test_reading_the_page_changes_nothing(get: Get, tables: dict[str, BaseTable]) -> None:
    root = Path(tables["behind"].uri)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}

    for path in ("/", "/table?name=behind"):
        get(path)

    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before

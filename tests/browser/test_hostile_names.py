"""Names, values, errors and results that are markup or addresses of scripts, on the page in a real browser."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lance
import pyarrow as pa
import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright

from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.region.quarantine import Quarantined
from memwal_core.region.spec import identity_spec
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.table import Table
from memwal_core.web import create_app
from memwal_core.writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA, quality_of
from tests.browser.looks import ARGUMENTS, PATIENCE_MS

pytestmark = [pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MARK = "window.pwned=1"
HOSTILE = (f"<script>{MARK}</script>", f"\"'><img src=x onerror={MARK}>", f"javascript:{MARK}//", "{{ 7*7 }}${7*7}")
TEXT = " ".join(HOSTILE)


LINKS = "[...document.querySelectorAll('[href],[src]')].map((each) => each.href || each.src)"


@dataclass(frozen=True)
class Site:
    """The page over one hostile table, served on this machine."""

    address: str
    name: str
    region: str


class Listed:
    """Tables of a list, whose names no registry would accept."""

    def __init__(self, tables: tuple[RegisteredTable, ...]) -> None:
        self._registry = Registry.model_construct(tables=tables, exclude=(), single_user=True)

    def registry(self) -> Registry:
        return self._registry

    def open(self, table: RegisteredTable) -> Table:
        return Table.open(table.uri)


def _entry(name: str, uri: str) -> RegisteredTable:
    fields: dict[str, Any] = {
        "connection": "",
        "every_minutes": 10.0,
        "collect_garbage": False,
        "remove_versions": False,
    }
    return RegisteredTable.model_construct(name=name, uri=uri, input_suites=(), **fields)


def _hostile_table(folder: Path) -> BaseTable:
    """Make a table whose column, region value, index, runs, checks and reasons are hostile."""
    schema = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
            pa.field("<b>name</b>", pa.string()),
        ]
    )
    uri = str(folder / f"{HOSTILE[1].replace('/', '')}.lance")
    lance.write_dataset(pa.table({"id": [TEXT], "<b>name</b>": [TEXT]}, schema=schema), uri)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([identity_spec(1, schema.field("id"), table.state().field_ids)])
    with TableWriter.open(table) as writer:
        writer.put(pa.table({"id": [TEXT], "<b>name</b>": [TEXT]}, schema=schema))
        writer.flush()
    opened = Table.open(uri)
    for holder in (TEXT, f"memwal_gc/{TEXT}", "memwal_gc/../../../x", f"memwal_gc/{HOSTILE[2]}"):
        with opened.opened.ledger.run(opened.opened.new_run(JobKey("gc"), holder)) as run:
            run.verdict = TEXT
    [region] = opened.status().regions
    quality = quality_of(opened)
    quality.quarantine.add(Quarantined(region.region_id, 1, (TEXT,), "2026-01-02T03:04:05+00:00"))
    failed = CheckResult(Check.KEY_UNIQUE, Result.FAILED, TEXT, TEXT, 1)
    now = table.clock.now().isoformat()
    quality.record(QualityReport(uri, Stage.AFTER, JobOutcome.DONE, 3, (failed,), (), now, 1.0, HOSTILE[2]))
    return table


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    table = _hostile_table(tmp_path_factory.mktemp("hostile"))
    entries = (_entry(TEXT, table.uri), _entry(HOSTILE[2], f"/nowhere/{HOSTILE[1]}"))
    config = uvicorn.Config(create_app(Listed(entries)), host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    region = str(Table.open(table.uri).status().regions[0].region_id)
    try:
        yield Site(f"http://127.0.0.1:{port}", TEXT, region)
    finally:
        server.should_exit = True
        thread.join()


def test_hostile_names_are_shown_as_text(site: Site, tmp_path: Path) -> None:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; next: apt-get install chromium")
        pytest.skip("no Chromium on this machine")
    name = quote(site.name, safe="")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=CHROMIUM, headless=True, args=ARGUMENTS, timeout=PATIENCE_MS
        )
        try:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            for path in (
                "", f"table?name={name}", f"region?table={name}&region={site.region}",
                f"run?dag=memwal_gc&table={name}&region={site.region}", f"table?name={quote(HOSTILE[2], safe='')}",
                f"table?name={quote(HOSTILE[0], safe='')}", f"run?dag={quote(HOSTILE[0], safe='')}&table={name}",
            ):  # fmt: skip
                page.goto(f"{site.address}/{path}")
                expect(page.locator("h1")).to_be_visible()
                assert page.evaluate("window.pwned") is None, path
                assert page.locator("main script, main img, main b > b, main iframe").count() == 0
                links = page.evaluate(
                    "[...document.querySelectorAll('[href],[src]')].map((each) => each.href || each.src)"
                )
                assert [link for link in links if not link.startswith(site.address)] == []
                if path == f"table?name={name}":
                    assert page.locator("main").inner_text().count("<script>") >= 3  # as text
            # The policy holds also where markup should ever get through.
            page.goto(f"{site.address}/")
            page.evaluate("(text) => { document.querySelector('main').innerHTML = text; }", TEXT)
            page.evaluate("(href) => { const a = document.createElement('a'); a.href = href; a.click(); }", HOSTILE[2])
            page.wait_for_timeout(300)
            assert page.evaluate("window.pwned") is None
            assert [each for each in asked if not each.startswith(site.address)] == []
        finally:
            context.close()

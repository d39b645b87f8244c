"""The page that decides, in a real browser: tables in every state, and two hundred of them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import lance
import pytest
import uvicorn
from playwright.sync_api import Page, Route, expect, sync_playwright

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import MemwalError
from memwal_core.format.paths import region_directory
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import PageSettings, Settings
from memwal_core.table import Table
from memwal_core.web import create_app
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people
from tests.browser.looks import (
    ARGUMENTS,
    LOOKS,
    PATIENCE_MS,
    barriers,
    cut_off,
    hard_to_read,
    overlaps,
    shoot,
    tab_to,
)

pytestmark = [pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
expect.set_options(timeout=PATIENCE_MS)
SETTINGS = Settings.model_validate({"status": {"pending_generations_warn": 2, "pending_generations_page": 3}})


class Tables:
    """Tables of a list, each with what opens it; counts."""

    def __init__(self, entries: Sequence[RegisteredTable]) -> None:
        self._entries = tuple(entries)
        self.opened = 0

    def registry(self) -> Registry:
        # Not validated: names of one table two hundred times are enough here.
        return Registry.model_construct(tables=self._entries)

    def open(self, table: RegisteredTable) -> Table:
        self.opened += 1
        return Table.open(table.uri, settings=SETTINGS)


def _make(folder: Path, name: str, waiting: int) -> RegisteredTable:
    path = folder / f"{name}.lance"
    table = make_people_table(str(path), rows=people(*range(9)), buckets=1)
    with TableWriter.open(table) as writer:
        writer.put(people(1, 2))
        writer.flush()
        Table.open(str(path)).run(MergeRequest())
        for number in range(waiting):
            writer.put(people(number))
            writer.flush()
    return RegisteredTable(name=name, uri=str(path))


@contextmanager
def _served(tables: Tables, deep_s: float = 600, fresh_s: float = 600) -> Iterator[str]:
    app = create_app(tables, settings=PageSettings(patience_s=1, fresh_s=fresh_s, deep_s=deep_s))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _browser(profile: Path, look: str) -> Iterator[Page]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; next: apt-get install chromium")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, headless=True, args=ARGUMENTS, timeout=PATIENCE_MS, **LOOKS[look]
        )
        context.set_default_timeout(PATIENCE_MS)
        try:
            yield context.new_page()
        finally:
            context.close()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[RegisteredTable]:
    folder = tmp_path_factory.mktemp("fleet")
    frozen = _make(folder, "payments", 1)
    Table.open(frozen.uri).opened.freezes.add(FreezeCause.BY_HAND, {"reason": "a restore is under way"}, "anna")
    gone = RegisteredTable(name="returns", uri="/nowhere/returns.lance")
    return [_make(folder, "orders", 0), _make(folder, "clicks", 4), frozen, gone]


@pytest.mark.parametrize("look", ["light", pytest.param("dark", marks=pytest.mark.long), "narrow"])
def test_fleet_says_of_each_table_what_is_wrong_and_what_to_do(
    states: list[RegisteredTable], tmp_path: Path, look: str
) -> None:
    with _served(Tables(states)) as address, _browser(tmp_path / "profile", look) as page:
        page.goto(f"{address}/")
        expect(page.locator("#fleet")).to_have_attribute("data-awaited", "0")
        tiles = page.get_by_role("navigation", name="Tables by state").get_by_role("link")
        assert tiles.all_inner_texts() == ["4 all", "1 fine", "1 need attention", "1 frozen", "1 unknown"]
        assert page.locator(".row h2").all_inner_texts() == ["returns", "payments", "clicks", "orders"]
        rows = {row.locator("h2").inner_text(): row for row in page.locator(".row").all()}
        assert "Cannot be read: the table, version or file does not exist" in rows["returns"].inner_text()
        assert "(anna: a restore is under way)" in rows["payments"].inner_text()
        assert "4 flushed MemTables of region" in rows["clicks"].inner_text()
        assert rows["orders"].locator(".button").count() == 0
        assert [rows[name].locator(".button").count() for name in ("returns", "payments", "clicks")] == [1, 1, 1]
        shoot(page, f"fleet-{look}")
        assert [hard_to_read(page), cut_off(page), barriers(page)] == [[], [], []]

        tab_to(page, "Decide, then thaw… payments")
        page.keyboard.press("Enter")
        expect(page.locator("#command")).to_have_text(f"memwal thaw {states[2].uri}")
        book = page.get_by_role("complementary", name="Runbook frozen-by-hand")
        expect(book.get_by_role("heading", name="A person froze the table")).to_be_visible()
        expect(book.get_by_text(f"memwal thaw {states[2].uri}", exact=False).first).to_be_visible()
        events = page.locator(".events li b").all_inner_texts()
        assert events[:2] == ["freeze of the table", "merge"]
        charts = page.locator(".chart svg").all()
        assert [each.get_attribute("aria-label") is not None for each in charts] == [True] * len(charts) != []
        page.get_by_role("button", name="copy the command").click()
        expect(page.locator("#copied")).not_to_be_empty()
        shoot(page, f"frozen-{look}")
        assert [hard_to_read(page), cut_off(page), barriers(page)] == [[], [], []]

        page.goto(f"{address}/?state=attention")
        assert page.locator(".row h2").all_inner_texts() == ["clicks"]
        page.get_by_role("link", name="Merge… clicks").click()
        region = Table.open(states[1].uri).status().regions[0].region_id
        assert page.url.endswith(f"run?dag=memwal_merge&table=clicks&region={region}")


def test_fleet_that_stays_open_follows_its_tables_and_says_when_it_cannot(tmp_path: Path) -> None:
    entries = [_make(tmp_path, f"t{number}", 0) for number in range(9)]
    with _browser(tmp_path / "profile", "light") as page:
        with _served(Tables(entries), fresh_s=1) as address:
            page.goto(f"{address}/")
            expect(page.locator(".row.fine")).to_have_count(9)
            page.get_by_label("Find a table").fill("t3")
            page.get_by_label("Find a table").blur()
            Table.open(entries[3].uri).opened.freezes.add(FreezeCause.BY_HAND, {"reason": "a test"}, "anna")
            expect(page.locator(".row.frozen")).to_have_count(1)
            assert page.locator(".row:visible").count() == 1  # what was looked for is still looked for
            expect(page.get_by_text("This list cannot be read again")).to_be_hidden()
        expect(page.get_by_text("This list cannot be read again")).to_be_visible()
        assert [hard_to_read(page), barriers(page)] == [[], []]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> list[RegisteredTable]:
    """A region that vanished, and a table that was overwritten: long names of files, several findings at once."""
    folder = tmp_path_factory.mktemp("damaged")
    vanished, overwritten = (_make(folder, name, 1) for name in ("vanished", "overwritten"))
    [region] = Table.open(vanished.uri).opened.manifests.region_ids()
    shutil.rmtree(Path(vanished.uri) / region_directory(region))
    lance.write_dataset(people(77), overwritten.uri, mode="overwrite")
    for each in (vanished, overwritten):
        with suppress(MemwalError):
            Table.open(each.uri).run(MergeRequest())
    return [vanished, overwritten]


@pytest.mark.parametrize("look", ["light", "narrow"])
def test_pages_of_damaged_tables_fit_and_say_what_is_wrong_in_words(
    damaged: list[RegisteredTable], tmp_path: Path, look: str
) -> None:
    with _served(Tables(damaged)) as address, _browser(tmp_path / "profile", look) as page:
        for each, book in zip(damaged, ("region-vanished", "progress-lost"), strict=True):
            page.goto(f"{address}/table?name={each.name}")
            shoot(page, f"{each.name}-{look}")
            expect(page.get_by_role("complementary", name=f"Runbook {book}")).to_be_visible()
            expect(page.locator(".sentence")).to_contain_text("No job has worked on")
            assert "[region_id=" not in page.locator("main").inner_text()
            assert [hard_to_read(page), cut_off(page), overlaps(page), barriers(page)] == [[], [], [], []]


@pytest.mark.parametrize("place", ["", "table?name={name}", "run?dag=memwal_gc&table={name}"])
def test_longest_names_of_table_and_run_fit_into_a_narrow_window(tmp_path: Path, place: str) -> None:
    """The heading of the form was as wide as the name."""
    table = RegisteredTable(name="x" * 100, uri=_make(tmp_path, "orders", 1).uri)
    opened = Table.open(table.uri).opened
    with opened.ledger.run(opened.new_run(JobKey("gc"), f"memwal_gc/{'y' * 250}/2026-01-01T00:00:00.000000Z")):
        pass
    with _served(Tables([table])) as address, _browser(tmp_path / "profile", "narrow") as page:
        page.goto(f"{address}/{place.format(name=table.name)}")
        expect(page.get_by_role("main")).to_contain_text(table.name)
        assert [cut_off(page), overlaps(page)] == [[], []]


def test_press_after_a_lost_answer_begins_no_second_run(states: list[RegisteredTable], tmp_path: Path) -> None:
    """The page said "Not triggered" of a run whose answer was lost, and the next press began another one."""
    begun: dict[str, object] = {}
    answers = ["lost", "told", "told"]

    def airflow(route: Route) -> None:
        request, body = route.request, route.request.post_data_json
        if request.method == "GET":
            route.fulfill(json={"params": {"table": {"value": None, "schema": {"type": "string", "title": "Table"}}}})
        elif (name := body.get("dag_run_id", f"run {len(begun)}")) in begun:
            route.fulfill(json={"detail": "it exists"}, status=409)
        else:
            begun[name] = body["conf"]
            route.abort() if answers.pop(0) == "lost" else route.fulfill(json={"dag_run_id": name})

    with _served(Tables(states)) as address, _browser(tmp_path / "profile", "light") as page:
        page.route("**/api/v2/**", airflow)
        page.goto(f"{address}/run?dag=memwal_merge&table=clicks")
        button, result = page.get_by_role("button", name="Trigger"), page.locator("#result")
        button.click()
        expect(result).to_contain_text("whether the run began is not known")
        button.click()
        expect(result).to_contain_text("Triggered.")
        assert list(begun.values()) == [{"table": "clicks"}]
        link = page.get_by_role("link", name="Open the run").get_attribute("href")
        assert unquote(link or "").endswith(f"/runs/{next(iter(begun))}")
        button.click()
        expect(result).to_contain_text("Triggered.")
        page.wait_for_function("!document.querySelector('#run button').disabled")
    assert list(begun.values()) == [{"table": "clicks"}] * 2


def test_two_hundred_tables_are_shown_as_they_are_read_and_found_by_name(
    states: list[RegisteredTable], tmp_path: Path
) -> None:
    same = [RegisteredTable(name=f"tenant_{number:03}", uri=states[0].uri) for number in range(200)]
    tables = Tables([*same, states[1]])
    with _served(tables, deep_s=0) as address, _browser(tmp_path / "profile", "light") as page:
        page.goto(f"{address}/")
        expect(page.locator("#fleet")).to_have_attribute("data-awaited", "0")
        expect(page.locator(".row")).to_have_count(201)
        assert page.locator(".row h2").first.inner_text() == "clicks"
        shoot(page, "fleet-of-200")
        page.get_by_label("Find a table").fill("tenant_19")
        expect(page.get_by_role("status").last).to_have_text("10 of 201 tables")
        expect(page.locator(".row:visible")).to_have_count(10)
        page.goto(f"{address}/?state=fine")
        assert tables.opened == 201  # each once, however often the page was asked
        assert [cut_off(page), barriers(page)] == [[], []]

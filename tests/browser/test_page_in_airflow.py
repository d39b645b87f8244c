"""The status page in a real browser, inside the Airflow of the embedded stack, which is served below a path."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import FrameLocator, Page, expect, sync_playwright

from demo.stack.marked import marked_processes
from memwal_core.table import Table
from testkit.fuzz.tables import make_tables
from testkit.fuzz.watch import MOST_BYTES, MOST_SECONDS
from tests.browser.hostile_tables import BLOWS, Watched, attacked, make_struck_tables, rounds_of_attacks
from tests.browser.looks import ARGUMENTS, LOOKS, PATIENCE_MS, PLACES, barriers, cut_off, hard_to_read, shoot, tab_to

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
expect.set_options(timeout=PATIENCE_MS)
PATH = "/airflow"
"""Airflow and with it the page are below a path, as behind a reverse proxy: the harder case."""
_AGE = re.compile(r"[\d.]+ (s|min)\b")


class Stack:
    """The embedded stack, as `make up` starts it."""

    def __init__(self, directory: Path) -> None:
        state = json.loads((directory / "stack.json").read_text())
        self.directory = directory
        self.address: str = state["address"]
        self.password: str = state["password"]
        self.token = self.login("admin", self.password)
        passwords = json.loads((directory / "airflow" / "passwords.json").read_text())
        self.viewer = self.login("viewer", passwords["viewer"])

    def login(self, username: str, password: str) -> str:
        return str(self.ask("/auth/token", {"username": username, "password": password})["access_token"])

    def ask(self, path: str, body: Any = None, *, token: str = "") -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        with urlopen(Request(self.address + path, data=data, headers=headers), timeout=300) as answer:
            return json.loads(answer.read())

    def page(self, path: str) -> str:
        """Return the text of the page at a path; a server that does not answer for a minute never will."""
        request = Request(f"{self.address}/memwal/{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def status_of(self, path: str) -> int:
        try:
            with urlopen(self.address + path, timeout=300) as answer:
                return int(answer.status)
        except HTTPError as error:
            error.close()
            return error.code


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("up") / "stack"
    arguments = ["--directory", str(directory)]
    try:
        command = [sys.executable, "-m", "demo", "up", *arguments, "--path", PATH]
        up = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        assert up.returncode == 0, up.stdout + up.stderr
        yield Stack(directory)
    finally:
        down = subprocess.run(
            [sys.executable, "-m", "demo", "down", *arguments], check=False, capture_output=True, text=True, timeout=300
        )
    assert down.returncode == 0, down.stdout + down.stderr
    assert marked_processes(str(directory.resolve())) == []


@contextmanager
def _browser(stack: Stack, profile: Path, *, token: str = "", **more: Any) -> Iterator[Page]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; next: apt-get install chromium")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, headless=True, args=ARGUMENTS, timeout=PATIENCE_MS,
            **{"viewport": {"width": 1400, "height": 900}, **more},
        )  # fmt: skip
        context.set_default_timeout(PATIENCE_MS)
        try:
            context.add_cookies([{"name": "_token", "value": token or stack.token, "url": stack.address}])
            page = context.new_page()
            outside: list[str] = []
            page.on("request", lambda request: outside.append(request.url) if _is_outside(request.url, stack) else None)
            yield page
            assert outside == []
        finally:
            context.close()


def _is_outside(url: str, stack: Stack) -> bool:
    """Whether a request misses the path that Airflow is served under, so that no reverse proxy would pass it on."""
    return url.startswith("http") and not url.startswith(f"{stack.address}/")


def _open(page: Page, stack: Stack) -> FrameLocator:
    page.goto(f"{stack.address}/plugin/memwal")
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="Tables, worst first")).to_be_visible()
    return frame


def _choose(page: Page | FrameLocator, job: str) -> None:
    """Open the form of a job from the menu."""
    page.locator("summary", has_text="Jobs").click()
    page.locator(".menu").get_by_role("link", name=job).click()


def _registered(tables: Mapping[str, str]) -> str:
    return "".join(f"\n[[tables]]\nname = '{name}'\nuri = '{uri}'\n" for name, uri in tables.items())


@pytest.fixture
def struck(stack: Stack) -> Iterator[dict[str, Path]]:
    """Register tables whose files are hostile, and those that the fuzzer attacks, which are returned."""
    registry = stack.directory / "tables.toml"
    before = registry.read_text()
    places = [stack.directory / name for name in ("struck", "attacked")]
    for place in places:
        place.mkdir()
    tables = make_tables(places[1])
    struck = make_struck_tables(places[0])
    registry.write_text(before + _registered(struck | {name: str(path) for name, path in tables.items()}))
    yield tables
    registry.write_text(before)


def test_hostile_bytes_neither_end_nor_occupy_the_server_that_shows_them(stack: Stack, struck: dict[str, Path]) -> None:
    """The real server: one process for the page and for Airflow's API, with which tasks tell how they stand."""
    [server, *_] = json.loads((stack.directory / "stack.json").read_text())["servers"]
    watched = Watched(int(server))

    def page(path: str) -> str:
        before = watched.worked_s()
        answer = stack.page(path)
        assert watched.worked_s() - before < MOST_SECONDS, path
        return answer

    until = time.monotonic() + 60
    while "Every file examined</dt><dd>not yet" in (sound := page("table?name=orders")):
        assert time.monotonic() < until, "the doctor has not looked at the table in a minute"
        time.sleep(0.5)
    for name, (_, words) in BLOWS.items():
        assert words in page(f"table?name={name}").lower(), name
        assert name in page(f"run?dag=memwal_merge&table={name}")
    assert ">orders</a>" in page("")
    for attacks in rounds_of_attacks(struck):
        with attacked(attacks):
            for each in attacks:
                assert f"<h1>{each.maker}" in page(f"table?name={each.maker}"), str(each)
            listed = page("")
            assert [name for name in (*BLOWS, *struck, "orders") if f">{name}</a>" not in listed] == []
            assert stack.ask("/api/v2/monitor/health")["metadatabase"]["status"] == "healthy"

    assert _AGE.sub("", page("table?name=orders")) == _AGE.sub("", sound)
    assert watched.is_as_before
    assert watched.peak_bytes() < MOST_BYTES


@pytest.mark.parametrize("path", ["/memwal/", "/memwal/table?name=orders", "/memwal/run?dag=memwal_gc&table=orders"])
def test_anonymous_request_is_refused(stack: Stack, path: str) -> None:
    assert stack.status_of(path) == 401


def test_documentation_of_the_page_is_not_served(stack: Stack) -> None:
    assert [stack.status_of(f"/memwal/{path}") for path in ("docs", "openapi.json", "redoc")] == [404, 404, 404]


def test_page_is_walked_by_keyboard_alone(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile") as page:
        page.goto(f"{stack.address}/memwal/")
        assert tab_to(page, "Skip to content") == 1
        tab_to(page, "orders")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Regions, worst first")).to_be_visible()
        page.goto(page.url)
        tab_to(page, "Jobs")
        page.keyboard.press("Enter")
        tab_to(page, "Flush idle regions…")
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name="Flush idle regions…")).not_to_be_visible()
        page.keyboard.press("Enter")  # the menu has the focus again
        tab_to(page, "Merge…")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Trigger")).to_be_enabled()
        tab_to(page, "Trigger")


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_can_be_read_and_is_kept_as_a_screenshot(stack: Stack, tmp_path: Path, look: str) -> None:
    region = Table.open(str(stack.directory / "orders.lance")).status().regions[0].region_id
    with _browser(stack, tmp_path / "profile", **LOOKS[look]) as page:
        for place, address in PLACES.items():
            page.goto(f"{stack.address}/memwal/{address.format(region=region)}")
            if place == "form":
                expect(page.get_by_role("button", name="Trigger")).to_be_enabled()
            if place == "table":
                page.locator(".score summary").first.click()
            shoot(page, f"{place}-{look}")
            assert hard_to_read(page) == []
            assert cut_off(page) == []
            assert barriers(page) == []


def test_form_is_that_of_the_dag_begins_dry_for_garbage_and_says_what_is_wrong(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", color_scheme="light", viewport={"width": 420, "height": 900}) as page:
        page.goto(f"{stack.address}/memwal/table?name=orders")
        _choose(page, "Collect garbage…")
        expect(page.get_by_label("Table")).to_have_value("orders")
        expect(page.get_by_label("Dry run")).to_be_checked()
        page.get_by_text("Bounds", exact=True).click()
        page.get_by_label("Regions").fill("region 1")
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_role("status")).to_contain_text("Not triggered: ")
        expect(page.get_by_role("status")).to_contain_text("regions")  # refused by Airflow, with the reason
        page.goto(f"{stack.address}/memwal/run?dag=memwal_quality&table=orders")
        expect(page.get_by_label("Stage")).to_have_value("after")


def test_viewer_sees_the_page_and_is_told_that_triggering_is_not_allowed(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", token=stack.viewer) as page:
        page.goto(f"{stack.address}/memwal/table?name=orders")
        _choose(page, "Merge…")
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_role("status")).to_contain_text("Not triggered: Forbidden")


def test_form_triggers_the_merge_and_leads_to_its_run(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", color_scheme="light") as page:
        frame = _open(page, stack)
        frame.get_by_role("link", name="orders").click()
        expect(frame.get_by_role("img", name="generations 1 to 6: flushed").first).to_be_visible()
        shoot(page, "page-in-airflow", whole=False)
        _choose(frame, "Merge…")
        expect(frame.get_by_label("Table")).to_have_value("orders")
        frame.get_by_role("button", name="Trigger").click()
        frame.get_by_role("link", name="Open the run").click()
        page.wait_for_url("**/dags/memwal_merge/runs/**")
        run = page.url.split("/runs/")[1].split("/")[0].split("?")[0]
        assert page.url.startswith(f"{stack.address}/dags/memwal_merge/runs/")
        expect(page.get_by_text("memwal_merge").first).to_be_visible()  # Airflow draws after it has moved on.
        shoot(page, "run-in-airflow", whole=False)

    # Waits for the end of the run: one line of JSON a second, the last with the final state.
    path = f"/api/v2/dags/memwal_merge/dagRuns/{run}/wait?interval=1"
    request = Request(stack.address + path, headers={"Authorization": f"Bearer {stack.token}"})
    with urlopen(request, timeout=900) as answer:
        last = json.loads(answer.read().splitlines()[-1])
    assert last["state"] == "success"
    status = Table.open(str(stack.directory / "orders.lance")).status()
    assert (status.num_rows, status.merge_lag_generations) == (11_000, 0)

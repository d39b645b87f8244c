"""The status page in a real browser, inside the Airflow of the embedded stack."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import FrameLocator, Page, expect, sync_playwright

from memwal_core.admin import TableAdmin

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SHOTS = "MAINTENANCE_SCREENSHOTS"
"""Folder outside the repository in which a CI keeps the screenshots."""


class Stack:
    """The embedded stack, as `make up` starts it."""

    def __init__(self, directory: Path) -> None:
        state = json.loads((directory / "stack.json").read_text())
        self.directory = directory
        self.address: str = state["address"]
        self.password: str = state["password"]
        self.token: str = self.ask("/auth/token", {"username": "admin", "password": self.password})["access_token"]

    def ask(self, path: str, body: Any = None, *, token: str = "") -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        with urlopen(Request(self.address + path, data=data, headers=headers), timeout=60) as answer:
            return json.loads(answer.read())

    def status_of(self, path: str) -> int:
        try:
            with urlopen(self.address + path, timeout=60) as answer:
                return answer.status
        except HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("up") / "stack"
    arguments = ["--directory", str(directory)]
    try:
        up = subprocess.run(["memwal", "up", *arguments], check=False, capture_output=True, text=True, timeout=400)
        assert up.returncode == 0, up.stdout + up.stderr
        yield Stack(directory)
    finally:
        subprocess.run(["memwal", "down", *arguments], check=False, capture_output=True, timeout=100)


@contextmanager
def _browser(stack: Stack, profile: Path, **more: Any) -> Iterator[Page]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; next: apt-get install chromium")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, headless=True, args=ARGUMENTS,
            **{"viewport": {"width": 1400, "height": 900}, **more},
        )  # fmt: skip
        try:
            context.add_cookies([{"name": "_token", "value": stack.token, "url": stack.address}])
            yield context.new_page()
        finally:
            context.close()


def _shoot(page: Page, name: str) -> None:
    folder = os.environ.get(SHOTS)
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def _open(page: Page, stack: Stack) -> FrameLocator:
    page.goto(f"{stack.address}/plugin/memwal")
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="Tables, worst first")).to_be_visible(timeout=30_000)
    return frame


@pytest.mark.parametrize("path", ["/memwal/", "/memwal/table?name=orders", "/memwal/run?dag=memwal_gc&table=orders"])
def test_anonymous_request_is_refused(stack: Stack, path: str) -> None:
    assert stack.status_of(path) == 401


def test_documentation_of_the_page_is_not_served(stack: Stack) -> None:
    assert [stack.status_of(f"/memwal/{path}") for path in ("docs", "openapi.json", "redoc")] == [404, 404, 404]


def test_page_shows_the_table_in_dark_and_is_walked_by_keyboard(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", color_scheme="dark") as page:
        frame = _open(page, stack)
        link = frame.get_by_role("link", name="orders")
        link.focus()
        page.keyboard.press("Enter")
        expect(frame.get_by_role("heading", name="Regions, worst first")).to_be_visible()
        score = frame.locator("summary").first
        score.focus()
        page.keyboard.press("Enter")
        expect(frame.get_by_text("merge lag").first).to_be_visible()
        background = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        assert background == "rgb(20, 24, 31)"
        _shoot(page, "page-dark")


def test_form_is_that_of_the_dag_begins_dry_for_garbage_and_says_what_is_wrong(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", color_scheme="light", viewport={"width": 420, "height": 900}) as page:
        page.goto(f"{stack.address}/memwal/table?name=orders")
        page.get_by_role("link", name="Collect garbage…").click()
        expect(page.get_by_label("Table")).to_have_value("orders")
        expect(page.get_by_label("Dry run")).to_be_checked()
        page.get_by_text("Storage", exact=True).click()
        page.get_by_label("Storage options").fill("{")
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_role("status")).to_contain_text("Not triggered: ")
        page.get_by_label("Storage options").fill('{"timeout": 5}')
        page.get_by_role("button", name="Trigger").click()
        expect(page.get_by_role("status")).to_contain_text("storage_options")  # refused by Airflow, with the reason
        _shoot(page, "form-narrow")
        page.goto(f"{stack.address}/memwal/run?dag=memwal_quality&table=orders")
        expect(page.get_by_label("Stage")).to_have_value("after")


def test_form_triggers_the_merge_and_leads_to_its_run(stack: Stack, tmp_path: Path) -> None:
    with _browser(stack, tmp_path / "profile", color_scheme="light") as page:
        frame = _open(page, stack)
        frame.get_by_role("link", name="orders").click()
        expect(frame.get_by_role("img", name="generations 1 to 6: flushed").first).to_be_visible()
        _shoot(page, "page-table")
        frame.get_by_role("link", name="Merge…").click()
        expect(frame.get_by_label("Table")).to_have_value("orders")
        frame.get_by_role("button", name="Trigger").click()
        frame.get_by_role("link", name="Open the run").click()
        page.wait_for_url("**/dags/memwal_merge/runs/**")
        run = page.url.split("/runs/")[1].split("/")[0].split("?")[0]
        _shoot(page, "airflow-run")

    # Waits for the end of the run: one line of JSON a second, the last with the final state.
    path = f"/api/v2/dags/memwal_merge/dagRuns/{run}/wait?interval=1"
    request = Request(stack.address + path, headers={"Authorization": f"Bearer {stack.token}"})
    with urlopen(request, timeout=240) as answer:
        last = json.loads(answer.read().splitlines()[-1])
    assert last["state"] == "success"
    status = TableAdmin.open(str(stack.directory / "orders.lance")).status()
    assert (status.num_rows, status.merge_lag_generations) == (11_000, 0)

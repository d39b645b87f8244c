"""The table of docs/security.md that says who may do what, and how each of its rows is asked of a running Airflow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from memwal_core.web.app import RUNNABLE, create_app
from tests.integration.airflow.servers import Servers

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
ROLES = (None, "guest", "viewer", "user", "op", "admin")
"""Users of the tests' Airflow by the columns of the table."""
YES = "yes"

# Airflow asks for the right to each action of many, after it has read them: this one changes nothing.
_MANY = {"actions": [{"action": "delete", "entities": ["none"], "action_on_non_existence": "skip"}]}

_ROW = re.compile(r"^\| `(GET|HEAD|POST|PATCH) ([^`]+)`(?:, [^|]*)? \|((?: \w+ \|){6})$", re.MULTILINE)
_REFUSALS = frozenset({"401", "403"})
# A body that is refused for what it says, after the right was checked: nothing is started or changed.
_BODIES: Mapping[str, Any] = {
    "dagRuns": {"logical_date": None, "conf": {"table": 5, "tables": 5}},
    "clearTaskInstances": {"dry_run": True, "dag_run_id": "none"},
    "xcomEntries": {"value": 1, "map_index": -1},
    "hitlDetails": {"chosen_options": ["Approve"], "params_input": {}},
    "taskInstances": {"new_state": "success"},
    "events": {"asset_id": 999_999, "extra": {}},
    "backfills": {"dag_id": "none", "from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-01T00:00:00Z"},
    "connections": {"connection_id": "a/b", "conn_type": "lance"},
    "variables": {"key": "", "value": 5},
    "pools": {"name": "", "slots": "x"},
}


@dataclass(frozen=True)
class Row:
    """One row: a request, and what each role gets: a status, or ``yes`` for any but 401 and 403."""

    method: str
    path: str
    answers: tuple[str, ...]


def rows() -> list[Row]:
    found = _ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    return [Row(method, path, tuple(answers.replace("|", " ").split())) for method, path, answers in found]


def routes_of_page() -> set[tuple[str, str]]:
    """Return method and path of every route of the page, as Airflow serves it."""
    found = set()
    for route in create_app(None).routes:  # type: ignore[arg-type]
        methods = getattr(route, "methods", None) or {"GET", "HEAD"}  # files are mounted
        path = "/static/page.css" if route.path == "/static" else route.path  # type: ignore[attr-defined]
        found |= {(method, f"/memwal{path}") for method in methods}
    return found


def requests_of_buttons() -> set[tuple[str, str]]:
    """Return what the script of the page asks Airflow for, for each job that has a button."""
    script = (Path(__file__).parents[3] / "memwal_core" / "web" / "static" / "run.js").read_text(encoding="utf-8")
    asked = re.findall(r"ask\(`([^`]+)`(, \{ method: \"(\w+)\")?", script)
    assert len(asked) == script.count("ask(`") == 2
    assert script.count("fetch(") == 1
    return {
        (method or "GET", "/api/v2/" + path.replace("${dag}", dag)) for path, _, method in asked for dag in RUNNABLE
    }


def answer(servers: Servers, row: Row, user: str | None, *, query: str = "") -> tuple[int, Any, str]:
    """Return status, headers and text of what a user gets."""
    parts = [part for part in row.path.split("/") if part in _BODIES]
    body = _BODIES[parts[-1]] if parts else None
    if row.method == "PATCH" and parts[-1:] in (["connections"], ["variables"], ["pools"]):
        body = _MANY
    data = json.dumps(body).encode() if row.method in ("POST", "PATCH") else None
    headers = {"Content-Type": "application/json"} if data else {}
    if user is not None:
        headers["Authorization"] = f"Bearer {servers.clients[user].token}"
    address = servers.address.removesuffix("/api/v2") + row.path + query
    try:
        with urlopen(Request(address, data=data, headers=headers, method=row.method), timeout=300) as found:
            return found.status, found.headers, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def shown(status: int, expected: str) -> str:
    """Return a status as the table writes it, where only the right matters."""
    return YES if expected == YES and str(status) not in _REFUSALS and status < 500 else str(status)

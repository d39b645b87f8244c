"""Whatever a user writes into any field of any DAG's form, on real servers: it is refused, or it is plain text."""

from __future__ import annotations

import hashlib
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from memwal_core.table import Table
from testkit.tables.people import make_people_table, people
from tests.integration.airflow import test_servers
from tests.integration.airflow.processes import whatever_was_written
from tests.integration.airflow.servers import Servers
from tests.integration.airflow.test_servers import SECRET, make_table

pytestmark = [pytest.mark.req("T1", "T5"), pytest.mark.airflow, pytest.mark.long, *test_servers.pytestmark[2:]]

collector, quoting, servers = test_servers.collector, test_servers.quoting, test_servers.servers

TEXTS = (
    "{{ conn.bait.password }}",
    "{% include '/etc/hostname' %}",
    "../outside.lance",
    "%2e%2e/outside.lance",
    "file:///{outside}",
    "--conf\nspark.x=1",
    "a\0b",
    "x" * 200_000,
    "\u202e\ud83d\ude00\ufeff",
)
WRONG_TYPES: tuple[object, ...] = (5, [["a"]], {"a": 1}, True)


def shaped(schema: dict[str, Any], text: str) -> object | None:
    """Return a value that a field takes, with a text of the attacker in it; None if it takes none."""
    kinds = schema.get("type", "string")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "enum" in schema or not {"string", "array", "object"} & set(kinds):
        return None
    return text if "string" in kinds else [text] if "array" in kinds else {text[:50]: text}


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        found.update(str(path).encode() + path.read_bytes())
    return found.hexdigest()


def try_to_trigger(servers: Servers, dag: str, conf: dict[str, object]) -> str | None:
    """Trigger a run as the user with the fewest rights to; return its id, None if the form refuses it."""
    try:
        asked = {"logical_date": None, "conf": conf}
        return str(servers.ask("POST", f"dags/{dag}/dagRuns", asked, "user")["dag_run_id"])
    except HTTPError as error:
        error.close()
        if error.code not in (400, 422):
            raise
        return None


def test_hostile_values_in_any_form_are_refused_or_plain_text(servers: Servers) -> None:
    table = make_table(servers, "forms", merged=True)
    outside = make_people_table(str(servers.root.parent / f"{servers.root.name}-forms.lance"), rows=people(1))
    before, rows = digest(Path(outside.uri)), table.dataset().count_rows()
    texts = cycle(text.replace("{outside}", outside.uri) for text in TEXTS)
    dags = [each["dag_id"] for each in servers.ask("GET", "dags?tags=memwal")["dags"]]
    runs: list[tuple[str, str]] = []
    tried = 0
    for dag in dags:
        servers.ask("PATCH", f"dags/{dag}", {"is_paused": False})
        fields = servers.ask("GET", f"dags/{dag}/details")["params"]
        for name, field in fields.items():
            for wrong in WRONG_TYPES:
                if not isinstance(wrong, bool) or "boolean" not in str(field["schema"]):
                    run = try_to_trigger(servers, dag, {"table": table.uri, name: wrong})
                    runs += [(dag, run)] if run is not None else []
                    tried += 1
            value = shaped(field["schema"], next(texts))
            if value is not None:
                run = try_to_trigger(servers, dag, {"table": table.uri, name: value})
                runs += [(dag, run)] if run is not None else []
                tried += 1

    ends = {(dag, run): servers.end(dag, run)[dag] for dag, run in runs}

    assert len(dags) >= 8
    assert tried > 100
    assert len(ends) >= 10, "most are refused by the form"
    assert "failed" in ends.values()
    written = whatever_was_written(servers.root)
    assert [name for name, text in written.items() if SECRET in text] == []
    assert digest(Path(outside.uri)) == before
    assert table.dataset().count_rows() == rows
    assert {each.key.job for each in Table.open(table.uri).opened.ledger.runs()} <= {"merge", *_jobs(dags)}


def _jobs(dags: list[str]) -> set[str]:
    return {dag.removeprefix("memwal_") for dag in dags}

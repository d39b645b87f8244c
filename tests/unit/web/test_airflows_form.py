"""Why the page has a form of its own: Airflow has no address for its own, filled in (decision 0018)."""

from __future__ import annotations

import re
from pathlib import Path

import airflow
import pytest

BUNDLES = sorted((Path(airflow.__file__).parent / "ui" / "dist" / "assets").glob("index-*.js"))


@pytest.fixture(scope="module")
def bundle() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in BUNDLES)


def test_no_route_of_airflow_leads_to_the_form_that_triggers_a_dag(bundle: str) -> None:
    routes = set(re.findall(r"\bpath:`([^`]+)`", bundle))

    assert {"dags/:dagId", "dags/:dagId/runs/:runId", "plugin/:page/*"} <= routes
    assert {route for route in routes if "trigger" in route.lower()} == set()


def test_form_of_airflow_is_filled_in_from_an_earlier_run_and_nothing_else(bundle: str) -> None:
    sources = re.findall(r"prefillConfig:([\w$]+|void 0)\b", bundle)
    state = r"=\(0,[\w$]+\.useState\)\(void 0\)"

    assert sources
    # The only thing that ever sets the state behind it is "trigger again with this configuration".
    assert re.search(rf"\[[\w$]+,([\w$]+)\]{state}.{{0,400}}?\(\)=>\{{[\w$]+&&\(\1\(\{{conf:[\w$]+\.conf", bundle)

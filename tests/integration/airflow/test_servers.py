"""The DAGs on Airflow's real servers over the REST API: people answer; runs wait, meet, repeat, are cleared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from packaging.version import Version

import memwal_core
from demo.airflow import configure_spark, find_checkout, find_java
from demo.directory import claim_directory
from demo.stack.stack import free_port, stack_environment, start_stack, stop_stack
from memwal_core.coordination.job_key import JobKey
from memwal_core.rng import system_rng
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.quoting_server import QuotingServer, quoting_server
from testkit.notifiers import notifiers_telling, told
from testkit.s3_server import S3Server
from testkit.tables.people import make_people_table, people
from tests.integration.airflow import role_matrix
from tests.integration.airflow.processes import jobs_of, whatever_was_written
from tests.integration.airflow.server_tables import (
    MERGED,
    content,
    flushed_directories,
    make_table,
    merges_held,
    outcomes,
    recorded_generations,
    take_over,
)
from tests.integration.airflow.servers import AIRFLOW, CLOCK, IS_3_1, LAKES, REGISTRY, RETRIES, Servers, telemetry_to
from tests.integration.telemetry.collector import Collector, collecting

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.slow,
    # The servers outlive the objects that started them, and are stopped by their numbers.
    pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning"),
]

SECRET = "the-password-of-a-connection"
BAIT = "AIRFLOW_CONN_BAIT"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


CANARIES = {
    "login": "CANARYlogin0123456789",
    "password": "CANARYsecret/key+0123456789",
    "extra": {"aws_session_token": "CANARYtoken//0123456789==", "aws_region": "us-east-1", "allow_http": "true"},
}
"""Credentials of the object stores of the tables ``lake`` and ``broken``; the first store takes any."""


def connection_to(endpoint: str) -> str:
    extra = {**CANARIES["extra"], "aws_endpoint": endpoint}  # type: ignore[dict-item]
    return json.dumps({**CANARIES, "conn_type": "lance", "extra": extra})


@pytest.fixture(scope="module")
def quoting() -> Iterator[QuotingServer]:
    with quoting_server() as running:
        yield running


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, collector: Collector, s3: S3Server, quoting: QuotingServer
) -> Iterator[Servers]:
    root = tmp_path_factory.mktemp("servers")
    directory = claim_directory(root / "stack")
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    configure_spark(directory)
    java, rng = find_java(checkout, os.environ), system_rng()
    environment = {
        **stack_environment(directory, checkout, java, os.environ, port=free_port(), rng=rng),
        # Airflow makes up the password of the guest, who has no role.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,op:op,user:user,viewer:viewer,guest:",
        BAIT: json.dumps({"conn_type": "lance", "login": "key", "password": SECRET}),
        "AIRFLOW_CONN_LAKE": connection_to(s3.endpoint),
        "AIRFLOW_CONN_BROKEN": connection_to(quoting.endpoint),
        "MEMWAL_STORAGE__MAX_ATTEMPTS": "1",
        "MAINTENANCE_GC_APPROVAL": "true",
        "MAINTENANCE_SCHEDULE": "0 0 * * *",
        "MAINTENANCE_RETRIES": str(RETRIES),
        "MAINTENANCE_NOTIFIERS": notifiers_telling(root / "told"),
        "MAINTENANCE_DEADLINE_S": "15",
        "PYTHONPATH": str(checkout.root),
        **telemetry_to(collector.address),
    }
    try:
        stack = start_stack(directory, environment, {}, CLOCK, rng)
        passwords = json.loads((directory.airflow_home / "passwords.json").read_text())
        found = Servers(stack, passwords, root)
        others = {"memwal_catchup", "memwal_quality", "memwal_maintain"}  # each test starts what it looks at
        found.until(lambda: others <= {each["dag_id"] for each in found.ask("GET", "dags?tags=memwal")["dags"]})
        for other in others:
            found.ask("PATCH", f"dags/{other}", {"is_paused": True})
        (directory.root / "tables.toml").write_text(REGISTRY.format(root=root))
        yield found
    finally:
        stop_stack(directory, CLOCK)


@pytest.mark.parametrize(
    "path", ["", "table?name=cycle", "region?table=cycle&region=1", "run?dag=memwal_gc&table=cycle"]
)
def test_page_is_for_users_who_may_see_runs(servers: Servers, path: str) -> None:
    # The registered table is not there yet, which its page says; a region that does not exist is not found.
    allowed = 404 if path.startswith("region") else 200

    found = {user: servers.status_of_page(path, user) for user in (None, "guest", "viewer", "user", "op", "admin")}

    assert found == {None: 401, "guest": 403} | dict.fromkeys(("viewer", "user", "op", "admin"), allowed)


def test_viewer_may_not_trigger_what_the_page_offers(servers: Servers) -> None:
    with pytest.raises(HTTPError) as refused:
        servers.ask("POST", "dags/memwal_merge/dagRuns", {"logical_date": None, "conf": {}}, user="viewer")

    refused.value.close()
    assert refused.value.code == 403


def test_collection_waits_for_a_person_and_a_rejection_deletes_nothing(servers: Servers) -> None:
    table = make_table(servers, "rejected", merged=True)
    run = servers.trigger("memwal_gc", table=table.uri, dry_run=False)
    servers.until(lambda: servers.asks(run))

    with pytest.raises(HTTPError, match="403") as refused:
        servers.answer(run, "Approve", user="viewer")
    refused.value.close()
    states = servers.end("memwal_gc", run, meanwhile=lambda: servers.answer_if_asked(run, "Reject"))

    assert states["memwal_gc"] == "success"
    assert {states[task] for task in ("hold", "work", "release")} == {"skipped"}
    assert recorded_generations(table) == 4
    assert outcomes(table, "gc") == []


def test_approved_collection_deletes_once_also_when_it_is_cleared_and_run_again(servers: Servers) -> None:
    table = make_table(servers, "approved", merged=True)
    run = servers.trigger("memwal_gc", table=table.uri, dry_run=False)
    servers.until(lambda: servers.asks(run))
    assert recorded_generations(table) == 4

    first = servers.end("memwal_gc", run, meanwhile=lambda: servers.answer_if_asked(run, "Approve"))

    assert {first[task] for task in ("approve", "hold", "work", "release", "memwal_gc")} == {"success"}
    assert recorded_generations(table) == 0
    servers.clear("memwal_gc", run, "work")
    second = servers.end("memwal_gc", run)
    assert second["memwal_gc"] == "success"
    assert second["work"] in ("success", "skipped")
    assert outcomes(table, "gc")[0] == "done"
    assert content(table) == MERGED
    assert Table.open(table.uri).opened.leases.read(JobKey("gc")).document.fencing_token == 2  # type: ignore[union-attr]


def test_two_collections_at_once_are_harmless(servers: Servers) -> None:
    table = make_table(servers, "twice", merged=True)
    runs = [servers.trigger("memwal_gc", table=table.uri, dry_run=False) for _ in range(2)]

    def approve_all() -> None:
        for run in runs:
            servers.answer_if_asked(run, "Approve")

    assert {servers.end("memwal_gc", run, meanwhile=approve_all)["memwal_gc"] for run in runs} == {"success"}
    assert recorded_generations(table) == 0
    assert outcomes(table, "gc").count("done") == 1
    assert content(table) == MERGED


@pytest.mark.req("LEASE-42")
def test_run_waits_for_a_lease_in_the_triggerer_and_goes_on_when_it_is_free(servers: Servers) -> None:
    table = make_table(servers, "waiting", merged=True)
    lease = Table.open(table.uri).opened.leases.acquire(JobKey("snapshot"), "somebody else")
    run = servers.trigger("memwal_snapshot", table=table.uri)

    servers.await_state("memwal_snapshot", run, "hold", "deferred")
    jobs = servers.ask("GET", f"{servers.run_path('memwal_snapshot', run)}/taskInstances/hold")
    assert jobs["trigger"]["classpath"] == "memwal_core.airflow.triggers.LeaseFreeTrigger"
    servers.settled("memwal_snapshot", run, "hold")
    overdue = (
        f"maintenance takes too long: {table.uri}; the run {run} has not ended in 15 s; docs/runbooks/stuck-job.md"
    )
    servers.until(lambda: any(each.startswith(overdue) for each in told(servers.root / "told")))
    lease.release()
    states = servers.end("memwal_snapshot", run)

    assert {states[task] for task in ("hold", "work", "release", "memwal_snapshot")} == {"success"}
    [record] = Table.open(table.uri).opened.ledger.runs("snapshot")
    assert (record.outcome.value, record.fencing_token) == ("done", 2)
    for task, index in (("plan", -1), ("hold", -1), ("work", 0)):
        path = f"{servers.run_path('memwal_snapshot', run)}/taskInstances/{task}/links?map_index={index}"
        links = servers.ask("GET", path)["extra_links"]
        assert links["Table"].endswith(f"/memwal/table?name={quote(table.uri, safe='')}")
        assert "/memwal/runbook?name=job-failures" in links["Runbook"]


@pytest.mark.req("LEASE-42")
def test_run_that_loses_its_lease_while_it_waits_fails_at_once_in_spite_of_retries(servers: Servers) -> None:
    table = make_table(servers, "fenced", merged=True)
    run = servers.trigger("memwal_gc", table=table.uri, dry_run=False, wait=True)

    def waits() -> bool:
        servers.answer_if_asked(run, "Approve")
        return servers.states("memwal_gc", run).get("work") == "deferred"

    servers.until(waits)
    waiting = servers.task("memwal_gc", run, "work")
    assert waiting["trigger"]["classpath"] == "memwal_core.airflow.triggers.GraceTrigger"
    assert waiting["rendered_map_index"] == ("0" if IS_3_1 else table.uri)
    assert recorded_generations(table) == 0
    servers.settled("memwal_gc", run, "work", 0)
    take_over(table, JobKey("gc"))
    states = servers.end("memwal_gc", run)

    assert (states["work"], states["memwal_gc"]) == ("failed", "failed")
    work = servers.task("memwal_gc", run, "work")
    assert (work["try_number"], work["max_tries"]) == (1, RETRIES)
    log = servers.log("memwal_gc", run, "work")
    assert "the lease of this job is lost" in log
    assert "fenced: somebody else has the lease, and does the work" in log
    assert f"maintenance failed [table={table.uri}" in log
    assert "a notifier failed [class=testkit.notifiers.BrokenNotifier]" in log
    assert any(each.startswith(f"maintenance failed: {table.uri}; ") for each in told(servers.root / "told"))
    assert flushed_directories(table) == 4
    assert outcomes(table, "gc") == ["done", "fenced"]


def test_tasks_send_what_their_jobs_record_in_the_trace_of_the_task(servers: Servers, collector: Collector) -> None:
    table = make_table(servers, "traced", merged=True)
    run = servers.trigger("memwal_snapshot", table=table.uri)

    assert servers.end("memwal_snapshot", run)["memwal_snapshot"] == "success"

    servers.until(lambda: "memwal.snapshot.regions" in collector.metrics)
    senders = {collector.metrics[name] for name in ("memwal.snapshot.regions", "memwal.snapshot.hints")}
    assert senders == {"Airflow" if IS_3_1 else "airflow"}
    assert {"memwal.job.runs", "memwal.job.duration"} <= set(collector.metrics)
    servers.require_span_below_its_task(collector, "memwal.snapshot")


def test_button_of_the_connection_form_looks_at_the_address(servers: Servers) -> None:
    make_people_table(str(servers.root / "button" / "people.lance"))
    body = {"connection_id": "button", "conn_type": "lance", "host": str(servers.root / "button")}

    assert servers.ask("POST", "connections/test", body) == {
        "status": True,
        "message": f"1 directory at {servers.root / 'button'}",
    }
    assert servers.ask("POST", "connections/test", {**body, "host": None})["status"] is False


@pytest.mark.spark
@pytest.mark.req("MRG-26", "MRG-27")
def test_merges_at_once_again_and_cleared_merge_every_row_once(servers: Servers, collector: Collector) -> None:
    table = make_table(servers, "merge", merged=False)
    first, second = (servers.trigger("memwal_merge", table=table.uri, engine="spark") for _ in range(2))

    assert servers.end("memwal_merge", first)["memwal_merge"] == "success"
    again = servers.end("memwal_merge", second)

    assert (again["memwal_merge"], again["work"]) == ("success", "skipped")
    events = servers.ask("GET", f"assets/events?source_dag_id=memwal_merge&source_run_id={quote(first)}")
    [told] = [each for event in events["asset_events"] for each in event["extra"]["tables"]]
    assert (told["table"], told["uri"]) == (table.uri, table.uri)
    assert (told["facts"]["rows"], set(told["facts"]["generations"].values())) == (70, {2})
    assert told["facts"]["version"] == table.state().version
    assert told["summary"].endswith("2 regions merged as planned, 70 rows, every key once")
    assert content(table) == MERGED
    version = table.state().version
    servers.clear("memwal_merge", first, "work")
    cleared = servers.end("memwal_merge", first)
    assert {cleared[task] for task in ("hold", "work", "verify", "release", "memwal_merge")} == {"success"}
    assert (content(table), table.state().version) == (MERGED, version)
    assert outcomes(table, "merge") == ["done", "nothing_to_do"]
    servers.until(lambda: "memwal.merge.rows" in collector.metrics)
    assert collector.metrics["memwal.merge.rows"] == "memwal"  # sent by the Spark job itself
    servers.require_span_below_its_task(collector, "memwal.merge")


DATES = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-02T00:00:00Z", "max_active_runs": 2}


@pytest.mark.skipif(Version("3.3") > AIRFLOW, reason="Airflow refuses it from 3.3 on")
@pytest.mark.parametrize("dag", ["memwal_merge", "memwal_gc"])
def test_backfill_of_one_job_is_refused(servers: Servers, dag: str) -> None:
    with pytest.raises(HTTPError) as refused:
        servers.ask("POST", "backfills", {"dag_id": dag, **DATES})

    assert refused.value.code == 422
    assert "does not support backfills" in refused.value.read().decode()


def test_backfill_of_the_cycle_repeats_it_without_harm(servers: Servers) -> None:
    table = make_table(servers, "cycle", merged=True)
    servers.ask("PATCH", "dags/memwal_maintain", {"is_paused": False})
    servers.ask("POST", "backfills", {"dag_id": "memwal_maintain", "dag_run_conf": {"tables": ["cycle"]}, **DATES})
    path = "dags/memwal_maintain/dagRuns?run_type=backfill"
    servers.until(lambda: servers.ask("GET", path)["total_entries"] == 2)
    runs = [each["dag_run_id"] for each in servers.ask("GET", path)["dag_runs"]]

    ended = [servers.end("memwal_maintain", run) for run in runs]

    assert [each["memwal_maintain"] for each in ended] == ["success", "success"]
    needless = [servers.task("memwal_maintain", run, f"cycle.{step}") for run in runs for step in ("audit", "check")]
    assert {(each["state"], each["try_number"]) for each in needless} == {("skipped", 0)}
    assert content(table) == MERGED
    assert recorded_generations(table) == 0
    assert outcomes(table, "gc").count("done") == 1
    assert outcomes(table, "snapshot").count("done") in (1, 2)  # Collection changes what a later snapshot holds.


def cycle_held_at_its_merge(servers: Servers, uri: str) -> str:
    run = servers.trigger("memwal_maintain", tables=[uri])
    servers.await_state("memwal_maintain", run, "cycle.merge", "scheduled")
    return run


@pytest.mark.parametrize(
    "hand",
    [
        "marked failed",
        "paused",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("marked successful", "deleted")),
    ],
)
def test_hands_on_a_cycle_do_no_harm_and_keep_no_table_from_the_next(servers: Servers, hand: str) -> None:
    table = make_table(servers, hand.replace(" ", "-"), merged=False)
    dag = "memwal_maintain"
    servers.ask("PATCH", f"dags/{dag}", {"is_paused": False})
    with merges_held(servers):
        run = cycle_held_at_its_merge(servers, table.uri)
        path = servers.run_path(dag, run)
        if hand == "paused":
            servers.ask("PATCH", f"dags/{dag}", {"is_paused": True})
        else:
            servers.ask("PATCH", path, {"state": "success" if hand == "marked successful" else "failed"})
            servers.end(dag, run)  # The end of the cycle is recorded; until then, Airflow deletes no run.
            if hand == "deleted":
                servers.ask("DELETE", path)
    if hand == "paused":
        servers.ask("PATCH", f"dags/{dag}", {"is_paused": False})
        servers.until(lambda: servers.ask("GET", path)["state"] == "success")  # It went on with its merge.
    else:
        assert content(table) == (list(range(50)), {"old": 50, "new": 0})
        assert servers.end(dag, servers.trigger(dag, tables=[table.uri]))[dag] == "success"

    assert content(table) == MERGED
    assert outcomes(table, "merge").count("done") == 1
    if hand.startswith("marked"):
        servers.ask("POST", f"{path}/clear", {"dry_run": False, "only_failed": False})
        servers.until(lambda: servers.ask("GET", path)["state"] == "success")
        assert content(table) == MERGED
        assert outcomes(table, "merge").count("done") == 1
    opened = Table.open(table.uri).opened
    assert all(each.has_ended for each in opened.ledger.runs("maintain"))
    assert all(opened.leases.in_other_hands(key, "anybody") is None for key in opened.leases.known_keys())


def refused_plan(servers: Servers, dag: str, **conf: Any) -> str:
    """Trigger a run as a user who may do no more than that; return the log of its plan, which must have failed."""
    run = str(servers.ask("POST", f"dags/{dag}/dagRuns", {"logical_date": None, "conf": conf}, "user")["dag_run_id"])
    states = servers.end(dag, run)
    assert (states["plan"], states[dag]) == ("failed", "failed"), states
    log = servers.log(dag, run, "plan", -1)
    assert SECRET not in log
    return log


@pytest.mark.parametrize("source", ["/etc/hostname", "--json=/tmp/written", "landing/../secret.csv"])
def test_user_can_ingest_from_registered_sources_only(servers: Servers, source: str) -> None:
    uri = make_table(servers, f"sources-{len(source)}", merged=False).uri

    log = refused_plan(servers, "memwal_ingest", table=uri, sources=[source], batch="b")

    assert "registered" in log
    assert Path("/etc/hostname").read_text().strip() not in log.replace("/etc/hostname", "")


@pytest.mark.parametrize("spelling", ["{root}/../{name}", "/etc"])
def test_user_can_maintain_registered_tables_only(servers: Servers, spelling: str) -> None:
    outside = servers.root.parent / f"{servers.root.name}-outside.lance"
    if not outside.exists():
        make_people_table(str(outside), rows=people(1))
    table = spelling.format(root=servers.root, name=outside.name)

    assert "not registered" in refused_plan(servers, "memwal_snapshot", table=table)
    assert Table.open(str(outside)).opened.ledger.runs() == []


def test_user_cannot_name_endpoints_connections_or_python(servers: Servers) -> None:
    uri = make_table(servers, "endpoints", merged=True).uri
    given = {"storage_options": {"aws_endpoint": "http://127.0.0.1:9"}, "storage_connection": "bait"}

    asked = {"sources": ["landing"], "suites": ["../run.py"], "batch": "b"}
    assert "not registered" in refused_plan(servers, "memwal_ingest", table=uri, **asked)
    assert "names that the form of its DAG lacks" in refused_plan(servers, "memwal_snapshot", table=uri, **given)


def test_text_of_a_form_is_never_rendered(servers: Servers) -> None:
    uri = make_table(servers, "rendered", merged=True).uri
    template = "{{ conn.bait.password }}{{ var.value.get('x', 'rendered') }}"

    log = refused_plan(servers, "memwal_ingest", table=uri, sources=[template], batch="b")

    assert "conn.bait.password }}" in log


def test_what_a_user_writes_between_two_tasks_is_not_believed(servers: Servers) -> None:
    outside = make_people_table(str(servers.root.parent / f"{servers.root.name}-between.lance"), rows=people(1))
    table = make_table(servers, "between", merged=True)
    run = servers.trigger("memwal_snapshot", table=table.uri)
    assert servers.end("memwal_snapshot", run)["memwal_snapshot"] == "success"
    path = f"{servers.run_path('memwal_snapshot', run)}/taskInstances/plan/xcomEntries/return_value"
    [item] = servers.ask("GET", f"{path}?deserialize=true")["value"]
    names = {"label", "table", "job", "request", "promise", "ticket", "to_spark", "where", "planned"}
    assert set(item) == names

    servers.ask("PATCH", path, {"value": [{**item, "table": outside.uri}], "map_index": -1}, "user")
    servers.clear("memwal_snapshot", run, "hold")
    states = servers.end("memwal_snapshot", run)

    assert (states["hold"], states["memwal_snapshot"]) == ("failed", "failed")
    assert Table.open(outside.uri).opened.ledger.runs() == []


def test_an_event_that_a_user_makes_up_starts_nothing_on_other_tables(servers: Servers) -> None:
    outside = make_people_table(str(servers.root.parent / f"{servers.root.name}-event.lance"), rows=people(1))
    assets = servers.ask("GET", "assets?name_pattern=memwal_indexes")["assets"]
    [asset] = [each["id"] for each in assets if each["name"] == "memwal_indexes"]
    before = servers.ask("GET", "dags/memwal_snapshot/dagRuns")["total_entries"]
    extra = {"tables": [{"table": outside.uri, "uri": outside.uri, "connection": "bait"}]}

    with pytest.raises(HTTPError, match="403") as refused:
        servers.ask("POST", "assets/events", {"asset_id": asset, "extra": extra}, "user")

    refused.value.close()
    assert servers.ask("GET", "dags/memwal_snapshot/dagRuns")["total_entries"] == before
    assert Table.open(outside.uri).opened.ledger.runs() == []


def test_roles_may_do_what_the_table_says(servers: Servers) -> None:
    listed = role_matrix.rows()

    assert role_matrix.routes_of_page() <= {(row.method, row.path) for row in listed}
    assert role_matrix.requests_of_buttons() <= {(row.method, row.path) for row in listed}
    found = {
        (row.method, row.path): tuple(
            role_matrix.shown(role_matrix.answer(servers, row, user)[0], expected)
            for user, expected in zip(role_matrix.ROLES, row.answers, strict=True)
        )
        for row in listed
    }
    assert found == {(row.method, row.path): row.answers for row in listed}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_answers_of_the_page_carry_the_policy_also_when_they_are_errors(servers: Servers, method: str) -> None:
    for path, query in [
        ("", ""), ("table", "?name=cycle"), ("table", ""), ("table", "?name=../cycle"),
        ("region", "?table=cycle&region=1"),
        ("run", "?dag=memwal_gc&table=cycle"), ("run", "?dag=%3Cscript%3E&table=cycle"), ("nowhere", ""),
        ("static/page.css", ""), ("static/../app.py", ""), ("static/nothing.js", ""),
    ]:  # fmt: skip
        for user in (None, "guest", "viewer"):
            row = role_matrix.Row(method, f"/memwal/{path}", ())
            status, headers, text = role_matrix.answer(servers, row, user, query=query)

            assert "default-src 'none'" in headers["Content-Security-Policy"], (path, user, status)
            assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert status < 500, (path, user, status)
            assert "<script>" not in text
            assert (method, status) not in {("POST", 200), ("POST", 303)}


def test_cookie_alone_posts_no_form_of_another_site(servers: Servers) -> None:
    """What a page of another site can send without asking first: a body that is not declared as JSON."""
    body = json.dumps({"logical_date": None, "conf": {"table": 5}}).encode()
    for kind, refused in (("application/json", {400}), ("text/plain", {415, 422}), ("multipart/form-data", {415, 422})):
        request = Request(f"{servers.address}/dags/memwal_merge/dagRuns", data=body, method="POST")
        request.add_header("Content-Type", kind)
        request.add_header("Cookie", f"_token={servers.clients['user'].token}")
        with pytest.raises(HTTPError) as answered:
            urlopen(request, timeout=300)
        answered.value.close()
        assert answered.value.code in refused, kind


@pytest.mark.parametrize("name", ["../../x", "{{ conn.bait.password }}", "a/b", "a\nb", "%2e%2e"])
def test_run_ids_of_a_user_are_plain(servers: Servers, name: str) -> None:
    asked = {"logical_date": None, "dag_run_id": name, "conf": {"table": "cycle"}}
    with pytest.raises(HTTPError) as refused:
        servers.ask("POST", "dags/memwal_snapshot/dagRuns", asked, "user")

    refused.value.close()
    assert refused.value.code in (400, 422)


def test_what_a_user_hands_to_the_task_of_another_job_is_refused(servers: Servers) -> None:
    table = make_table(servers, "confused", merged=True)
    run = servers.trigger("memwal_snapshot", table=table.uri)
    assert servers.end("memwal_snapshot", run)["memwal_snapshot"] == "success"
    path = f"{servers.run_path('memwal_snapshot', run)}/taskInstances/plan/xcomEntries/return_value"
    [item] = servers.ask("GET", f"{path}?deserialize=true")["value"]
    collection = {**item, "job": "gc", "request": {"dry_run": False}}

    servers.ask("PATCH", path, {"value": [collection], "map_index": -1}, "user")
    servers.clear("memwal_snapshot", run, "hold")
    states = servers.end("memwal_snapshot", run)

    assert (states["hold"], states["memwal_snapshot"]) == ("failed", "failed")
    second = f"{servers.run_path('memwal_snapshot', run)}/taskInstances/hold/logs/2?full_content=true&map_index=-1"
    refusal = "not what the task before it returns" if IS_3_1 else "one job only"  # 3.1 stores the list as text.
    assert refusal in json.dumps(servers.ask("GET", second)["content"])
    assert recorded_generations(table) == 4


@pytest.fixture
def lakes(servers: Servers) -> Iterator[None]:
    """Register two tables in object stores, of which one refuses whatever it is asked."""
    registry = servers.root / "stack" / "tables.toml"
    before = registry.read_text()
    registry.write_text(before + LAKES)
    yield
    registry.write_text(before)


@pytest.mark.spark
@pytest.mark.usefixtures("lakes")
def test_no_artefact_of_a_run_has_a_secret(
    servers: Servers, s3: S3Server, quoting: QuotingServer, collector: Collector
) -> None:
    """Credentials of a store are in no log, XCom, rendered field, database, page, span, file or command line."""
    table = make_people_table("s3://bucket/lake.lance", rows=people(*range(9)), storage_options=s3.storage_options)
    with TableWriter.open(table) as writer:
        writer.put(people(*range(5), name="new"))
        writer.flush()
    seen: dict[int, tuple[str, str]] = {}
    good = servers.trigger("memwal_merge", table="lake", engine="spark")
    states = servers.end("memwal_merge", good, meanwhile=lambda: seen.update(jobs_of(servers.root)))
    bad = servers.trigger("memwal_snapshot", table="broken")
    failed = servers.end("memwal_snapshot", bad)

    assert (states["memwal_merge"], failed["memwal_snapshot"]) == ("success", "failed")
    token = str(CANARIES["extra"]["aws_session_token"])  # type: ignore[index]
    assert token in "".join(quoting.requests)  # it was quoted back
    assert "***" in servers.log("memwal_snapshot", bad, "plan", -1)
    written = whatever_was_written(servers.root)
    assert len(written) > 20
    assert any("merge ended" in text for text in written.values())
    assert [name for name, text in written.items() if "CANARY" in text] == []
    for name in ("", "table?name=lake", "table?name=broken", "run?dag=memwal_gc&table=lake"):
        row = role_matrix.Row("GET", f"/memwal/{name.partition('?')[0]}", ())
        status, _, page = role_matrix.answer(servers, row, "viewer", query=f"?{name.partition('?')[2]}")
        assert (status, "CANARY" in page) == (200, False)
    for dag, run in (("memwal_merge", good), ("memwal_snapshot", bad)):
        told = json.dumps(
            [
                servers.ask("GET", f"{servers.run_path(dag, run)}/taskInstances"),
                servers.ask("GET", f"{servers.run_path(dag, run)}/taskInstances/~/xcomEntries"),
            ]
        )
        assert "CANARY" not in told
    assert "CANARY" not in json.dumps([collector.metrics, collector.spans, collector.ids])
    drivers = [(command, environment) for command, environment in seen.values() if "MAINTENANCE_JOB=" in environment]
    assert drivers
    assert not [command for command, _ in seen.values() if "CANARY" in command]
    # The driver is handed the options of its store, and nothing of Airflow's.
    assert all(token.split("/")[0] in environment for _, environment in drivers)
    assert not [each for _, each in drivers if "AIRFLOW__" in each or "AIRFLOW_CONN" in each]

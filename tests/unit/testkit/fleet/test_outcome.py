"""What counts as a problem of a fleet: alarms about sound tables, silence about broken ones, and failed tasks."""

from __future__ import annotations

from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from testkit.fleet.outcome import FleetOutcome
from testkit.fleet.tables import NOT_EXAMINED, FleetTable
from testkit.fleet.watching import Watching

SOUND = FleetTable("sound", "/lake/sound", batch_rows=1)
SILENT = FleetTable("silent", "s3://bucket/silent", ails=NOT_EXAMINED, told="no answer")
FROZEN = FleetTable("frozen", "/lake/frozen", ails="table-frozen", told="is frozen")

METRICS = """\
memwal_table_examined{memwal_table="sound"} 1
memwal_signal_level{memwal_table="sound",memwal_signal="wal_lag"} 0
memwal_signal_level{memwal_table="sound",memwal_signal="drain_time"} -1
memwal_table_examined{memwal_table="silent"} 0
memwal_table_examined{memwal_table="frozen"} 1
memwal_finding{memwal_table="frozen",finding="table-frozen",level="warn",runbook="frozen"} 1
"""
ROW = '<li class="row {} colour" data-name="{}"><h2>a</h2><p>{}</p></li>'
PAGE = "".join(
    (
        ROW.format("fine", "sound", "Nothing is wrong."),
        ROW.format("unknown", "silent", "There was no answer."),
        ROW.format("frozen", "frozen", "It is frozen."),
    )
)


@pytest.fixture
def outcome():
    """An hour without a problem."""
    outcome = FleetOutcome((SOUND, SILENT, FROZEN), Watching(0, lambda: PAGE), cycles=Counter({"sound": 6}))
    look(outcome)
    return outcome


def look(outcome: FleetOutcome, metrics: str = METRICS) -> None:
    class Watch(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            answer = metrics if self.path == "/metrics" else '{"not_examined": {"silent": "no answer in 45 s"}}'
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Watch) as server:
        Thread(target=server.serve_forever).start()
        outcome.watching.port = server.server_port
        outcome.watching.ask_watch(7.0)
        outcome.watching.read_page(7.0)
        server.shutdown()


def test_right_words_about_each_broken_table_and_none_about_sound_ones_are_no_problem(outcome):
    assert outcome.problems == []
    assert list(outcome.lines())[-1] == "0 problems"
    assert "  the watch said not examined 1 times from 7 to 7 s: no answer in 45 s" in outcome.lines()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('memwal_signal_level{memwal_table="sound",memwal_signal="wal_lag"} 1', "wal_lag"),
        ('memwal_finding{memwal_table="sound",finding="duplicate-keys",level="page",runbook="x"} 1', "duplicate-keys"),
        ('memwal_table_examined{memwal_table="sound"} 0', NOT_EXAMINED),
    ],
)
def test_whatever_the_watch_says_about_a_sound_table_once_is_a_problem(outcome, said, problem):
    look(outcome, METRICS + said + "\n")
    look(outcome)

    [found] = outcome.problems
    assert found.startswith(f"sound: the watch said {problem}")


def test_state_of_a_sound_table_on_the_page_is_a_problem_unless_it_is_only_awaited(outcome):
    outcome.watching.page = lambda: ROW.format("unknown", "sound", "Being read; nothing is known of it yet.")
    look(outcome)
    assert outcome.problems == []

    outcome.watching.page = lambda: ROW.format("attention", "sound", "Rows wait.")
    look(outcome)
    [found] = outcome.problems
    assert "the page said attention 1 times from 7 to 7 s: Rows wait." in found


def test_silence_and_other_words_about_a_broken_table_are_problems(outcome):
    outcome.watching.by_watch.pop("frozen")
    outcome.watching.on_page["silent"]["unknown"].words = "There is no table."

    assert [problem.partition(":")[0] for problem in outcome.problems] == ["silent", "frozen"]


def test_failed_tasks_of_sound_tables_and_of_all_tables_are_problems_and_those_of_broken_ones_are_not(outcome):
    def task(table: str | None, state: str = "failed") -> dict[str, object]:
        return {"task_id": "cycle.merge", "state": state, "rendered_map_index": table, "map_index": -1}

    outcome.take_tasks("run", [task("silent"), task("sound", "success")])
    assert outcome.problems == []
    outcome.take_tasks("run 2", [task("sound")])
    outcome.take_tasks("run 3", [task(None)])
    assert outcome.problems == ["sound: cycle.merge of run 2 failed for good", "cycle.merge of run 3 failed for good"]


def test_calling_people_twice_about_a_broken_table_is_a_problem(outcome):
    begin = {"task_id": "cycle.begin", "state": "failed", "rendered_map_index": None, "map_index": 7}
    end = {"task_id": "cycle.end", "state": "failed", "rendered_map_index": "silent", "map_index": 7}
    outcome.take_tasks("run 1", [begin, end])
    assert outcome.problems == []

    outcome.take_tasks("run 2", [begin, end])
    [problem] = outcome.problems
    assert problem.startswith("silent: people were called 2 times")


def test_sound_table_without_a_cycle_wrong_rows_failed_reads_and_mute_page_are_problems(outcome):
    outcome.cycles.clear()
    outcome.refused.append("sound could not be read after 7 s: the store did not answer")
    outcome.wrong.append("sound at the end: {1: ('a', {'b'})}")
    outcome.watching.looks["page"] = 0

    assert len(outcome.problems) == 4

"""``python -m``: works on the table that standard input names, a JSON document a line, and answers with its round.

Lance may end this process; whoever started it then knows the table. It ends with its input, also in the middle of work:
whatever a job does may be broken off. SIGTERM ends its work as Ctrl-C would, with an answer: leases are given back.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import resource
import signal
import sys
import threading
from dataclasses import dataclass
from typing import IO, Any

from memwal_core.clock import SystemClock
from memwal_core.fleet.due import work_due
from memwal_core.fleet.isolation import Deadline, asked_to_end
from memwal_core.fleet.rounds import failed, run_cycle
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.memory import memory_limit_bytes, peak_memory_bytes
from memwal_core.opening import open_here
from memwal_core.redaction import log_redacted
from memwal_core.telemetry import telemetry

_IDLE_S = 30
_OWN_SHARE = 0.5
"""Share of the memory that it may hold, above which a process ends after its table: what it held would be told of the
next one, and part of it stays allocated."""
_CLOCK = SystemClock()


@dataclass(slots=True)
class _Ending:
    """Whether SIGTERM came, and whether it has work to end."""

    has_come: bool = False
    is_working: bool = False


def main() -> None:
    """Answer until nothing is asked for a while."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Nothing else that is printed here may pass for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log_redacted(logging.INFO)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    ending = _Ending()

    def end(*_: object) -> None:
        ending.has_come = True
        asked.put("")
        if ending.is_working:
            ending.is_working = False  # The next SIGTERM ends no lease's return.
            raise SystemExit  # Work ends as after Ctrl-C; ``_answer`` tells it.

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_read, args=(sys.stdin, asked), name="memwal-questions", daemon=True).start()
    with telemetry():
        _serve(asked, answers, ending)


def _read(questions: IO[str], asked: queue.SimpleQueue[str]) -> None:
    for line in questions:
        asked.put(line)
    os._exit(1)


def _serve(asked: queue.SimpleQueue[str], answers: IO[str], ending: _Ending) -> None:
    while not ending.has_come:
        try:
            question = asked.get(timeout=_IDLE_S)
        except queue.Empty:
            return
        if not question:
            return
        answers.write(json.dumps(_answer(json.loads(question), ending)) + "\n")
        answers.flush()
        if peak_memory_bytes() > _OWN_SHARE * memory_limit_bytes():
            return


def _answer(asked: dict[str, Any], ending: _Ending) -> dict[str, object]:
    name, uri, began = asked["name"], asked["uri"], _CLOCK.monotonic()
    try:
        ending.is_working = True
        request = MaintainRequest(**asked["request"])
        opened = open_here(uri, asked["storage_options"])
        if "left_s" not in asked:
            due = work_due(opened.opened, request)
            return {"is_due": due.is_due, "why": due.why}
        deadline = Deadline(_CLOCK, began + asked["left_s"], asked["deadline_s"], lambda: ending.has_come)
        return run_cycle(name, uri, opened, request, deadline).to_dict()
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception; whatever it is, it is told
        told = asked_to_end() if isinstance(error, SystemExit) else error
        return failed(name, uri, told, _CLOCK.monotonic() - began).to_dict()
    finally:
        ending.is_working = False


if __name__ == "__main__":
    main()

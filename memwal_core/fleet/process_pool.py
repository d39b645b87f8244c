"""Work on tables in processes of their own: files at which Lance ends a process end one of these, and no other table's.

Airflow's secrets are not handed to them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from memwal_core.errors import CorruptionError, UnavailableError
from memwal_core.fleet.due import Due
from memwal_core.fleet.isolation import Deadline
from memwal_core.fleet.report import TableRound
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.native.child_processes import ChildProcesses, ProcessEndedError, ProcessSilentError, name_of

_CHILD = "memwal_core.fleet.table_process"
_NOT_HANDED_ON = "AIRFLOW"


class TableProcesses:
    """As many processes as tables are worked on at once; each serves one table after another, and is replaced if dead.

    Starting one takes half a second of processor time. One that is not needed for a while ends.

    Args:
        planning: How many plan at once; others wait.
        planning_s: Seconds after which one that plans is ended.
    """

    def __init__(self, planning: int, planning_s: float) -> None:
        """Start nothing yet."""
        self.environment = {name: value for name, value in os.environ.items() if _NOT_HANDED_ON not in name}
        self._cycles = ChildProcesses(_CHILD, retry_if_killed=False, inherit_stderr=True, environment=self.environment)
        self._plans = ChildProcesses(
            _CHILD,
            max_processes=planning,
            timeout_s=planning_s,
            retry_if_killed=False,
            inherit_stderr=True,
            environment=self.environment,
        )

    def cycle(
        self, name: str, uri: str, options: Mapping[str, str], request: MaintainRequest, deadline: Deadline
    ) -> TableRound:
        """Send a table through its cycle; the process is killed if it takes twice as long as it may.

        Args:
            name: As in the registry.
            uri: Its address.
            options: Of its store; they go before those of the environment.
            request: What its cycle may do.
            deadline: No step begins after it.

        Raises:
            CorruptionError: Its files end the process that reads them.
            UnavailableError: Somebody ended the process, or memory was short.
        """
        deadline.check()
        left_s = deadline.at - deadline.clock.monotonic()
        asked = {"name": name, "left_s": left_s, "deadline_s": deadline.seconds}
        longest_s = left_s + deadline.seconds
        return TableRound.from_dict(_ask(self._cycles, uri, options, request, asked, longest_s))

    def stop(self, wait_s: float = 0.0) -> None:
        """End cycles, which answer and give their leases back, and wait so long for the ends of the processes."""
        self._cycles.terminate(wait_s)

    def work_due(self, name: str, uri: str, options: Mapping[str, str], request: MaintainRequest) -> Due | TableRound:
        """Tell whether a cycle would have anything to do; the round of a table that cannot tell. Errors as above."""
        answer = _ask(self._plans, uri, options, request, {"name": name})
        return Due(**answer) if "is_due" in answer else TableRound.from_dict(answer)


def _ask(
    processes: ChildProcesses,
    uri: str,
    options: Mapping[str, str],
    request: MaintainRequest,
    more: Mapping[str, object],
    longest_s: float | None = None,
) -> dict[str, Any]:
    question = {"uri": uri, "storage_options": dict(options), "request": request.to_json(), **more}
    try:
        return processes.ask(question, longest_s)
    except ProcessEndedError as error:
        ended = name_of(error.returncode)
        if error.crashed:
            raise CorruptionError(
                "the files of the table end the process that reads them",
                remedy="run `memwal doctor --deep`, which names the file; the next merge leaves out what it is",
                table=uri,
                ended=ended,
            ) from None
        raise UnavailableError(
            "the process that worked on the table was ended",
            remedy="find out who ended it, or whether memory was short; the next round goes on where it was",
            table=uri,
            ended=ended,
        ) from None
    except ProcessSilentError as error:
        raise UnavailableError(str(error), remedy="find out whether its store answers slowly", table=uri) from None

"""Somebody who kills processes of the fleet at random; each is started again at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psutil

from memwal_core.rng import Rng
from testkit.fleet.servers import FleetServers
from testkit.fleet.writers import FleetWriters

_WRITER = "writer"
_EVERY_S = (45.0, 150.0)


class Disturber:
    """Kills somebody every now and then.

    Args:
        rng: Who, and when.

    Attributes:
        killed: Kind of process -> how often.
    """

    def __init__(self, servers: FleetServers, writers: FleetWriters, rng: Rng) -> None:
        """Choose when to begin."""
        self._rng, self._next = rng, rng.uniform(*_EVERY_S)
        self._awaited: str | None = None
        self.killed: Counter[str] = Counter()
        server = partial(_kill_server, servers)
        self._victims: dict[str, Callable[[], bool]] = {
            "scheduler alone": partial(server, "scheduler", with_tasks=False),
            "scheduler and its tasks": partial(server, "scheduler", with_tasks=True),
            "triggerer": partial(server, "triggerer", with_tasks=True),
            "DAG processor": partial(server, "dag-processor", with_tasks=True),
            "Spark driver": lambda: _kill_one(servers.drivers(), rng),
            "Spark worker": lambda: _kill_worker(servers, rng),
            "task": lambda: _kill_one(servers.tasks(), rng),
            **{f"{_WRITER} {number}": partial(_kill_writer, writers, number) for number in range(writers.processes)},
        }

    def disturb(self, now: float) -> str | None:
        """Kill somebody if it is time, and return whom; who is chosen and does not run just now is killed later."""
        if self._awaited is not None and self._victims[self._awaited]():
            chosen, self._awaited = self._awaited, None
            return self._count(chosen)
        if now < self._next:
            return None
        self._next = now + self._rng.uniform(*_EVERY_S)
        chosen = self._rng.choice(sorted(self._victims))
        if not self._victims[chosen]():
            self._awaited = chosen
            return None
        if chosen.startswith(_WRITER):
            # A region whose writers die more than once an hour is a finding, and a right one.
            del self._victims[chosen]
        return self._count(chosen)

    def _count(self, chosen: str) -> str:
        self.killed[chosen.rstrip(" 0123456789")] += 1
        return chosen


def _kill_server(servers: FleetServers, name: str, *, with_tasks: bool) -> bool:
    servers.kill_server(name, with_tasks=with_tasks)
    return True


def _kill_worker(servers: FleetServers, rng: Rng) -> bool:
    servers.kill_worker(rng.randrange(2))
    return True


def _kill_writer(writers: FleetWriters, number: int) -> bool:
    writers.kill(number)
    return True


def _kill_one(processes: list[psutil.Process], rng: Rng) -> bool:
    if not processes:
        return False
    with suppress(psutil.NoSuchProcess):
        rng.choice(processes).kill()
    return True

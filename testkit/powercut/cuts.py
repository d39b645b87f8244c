"""Cuts of a recording: where the power fails, what survives, and what is then wrong with the table."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from testkit.powercut.aftermath import Aftermath
from testkit.powercut.copies import COPYING, copies_at
from testkit.powercut.disk import Disk, Losses
from testkit.powercut.expected import ExpectedRows
from testkit.powercut.operations import Recording, SyncClass
from testkit.powercut.record import read_recording, record
from testkit.powercut.workload import TABLE_NAME, workload_settings
from testkit.rng import seeded_rng

OPERATIONS = (
    "create",
    "put",
    "delete",
    "flush",
    "flush_idle",
    "merge",
    "catchup",
    "compact",
    "versions",
    "snapshot",
    "gc",
    "backup",
    "relocate",
)
"""What a cut may interrupt, or follow at once."""

_AT_ONCE_AFTER = 0.3


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut and what came of it.

    Attributes:
        workload: Seed of what was recorded.
        seed: Decides the place and what survives.
        operation: What was under way, or had just ended.
        place: Number of recorded operations that had ended.
        losses: How much of what was not synced was lost.
        problems: What is wrong with the table; empty if all is well.
    """

    workload: int
    seed: int
    operation: str
    place: int
    losses: Losses
    problems: tuple[str, ...]

    def __str__(self) -> str:
        """Say what is wrong, and how to see it again."""
        again = f"python -m testkit.powercut --workload {self.workload} --operation {self.operation} --seed {self.seed}"
        said = "".join(f"\n  {problem}" for problem in self.problems or ["all is well"])
        return f"power cut in {self.operation}, after {self.place} steps, {self.losses}: {again}{said}"


class PowerCuts:
    """One recorded process, whose power fails again and again.

    Args:
        directory: Of the recording; each state is built in the place of its tables.
        workload: Seed of the workload.
        recorded: Whether the recording is there already.
    """

    def __init__(self, directory: Path, workload: int, *, recorded: bool = False) -> None:
        """Record the process, or read what was recorded."""
        self.recording: Recording = read_recording(directory) if recorded else record(directory, workload)
        self._workload = workload
        self._spans = _spans(self.recording)

    def cut(
        self, seed: int, operation: str, *, without: Collection[SyncClass] = (), all_jobs: bool | None = None
    ) -> Cut:
        """Cut the power once, put what is left in the place of the tables, and find out what is wrong with it.

        Args:
            seed: Decides everything about the cut.
            operation: One of ``OPERATIONS``.
            without: Take syncs of these classes for not done: no table survives that for long.
            all_jobs: Whether every job runs afterwards, and not only merges; with every fourth seed if None.
        """
        rng = seeded_rng(seed)
        first, last = rng.choice(self._spans[operation])
        place = last if rng.random() < _AT_ONCE_AFTER else rng.randrange(first, last + 1)
        losses = Losses.drawn(rng)
        Disk(self.recording, place, without).build(rng, losses)
        expected = ExpectedRows.at(self.recording, place)
        uri = os.path.join(self.recording.root, TABLE_NAME)
        aftermath = Aftermath(uri, expected, workload_settings(self._workload))
        if _is_torn(self.recording, place):
            aftermath.repair()
        aftermath.look()
        aftermath.look_at_copies(copies_at(self.recording, place), finish=operation in COPYING)
        aftermath.work(all_jobs=seed % 4 == 0 if all_jobs is None else all_jobs)
        return Cut(self._workload, seed, operation, place, losses, tuple(aftermath.problems))

    def many(
        self, count: int, operations: Sequence[str] = OPERATIONS, *, without: Collection[SyncClass] = ()
    ) -> Iterator[Cut]:
        """Cut the power with the seeds from 0 on, in one operation after the other."""
        for seed, operation in enumerate(islice(cycle(operations), count)):
            yield self.cut(seed, operation, without=without)


def _is_torn(recording: Recording, place: int) -> bool:
    """Whether a torn commit of another program was not set aside yet."""
    torn = False
    for where, said in recording.marks():
        if where < place:
            torn = said.get("torn", torn and said.get("ends") != "repair")
    return torn


def _spans(recording: Recording) -> Mapping[str, list[tuple[int, int]]]:
    """Return for each kind of operation the places at which one had begun and not ended, or had just ended."""
    found: dict[str, list[tuple[int, int]]] = {}
    began = 0
    for place, said in recording.marks():
        if "begins" in said:
            began = place + 1
        elif "ends" in said:
            # A table whose creation was cut off was never promised to anybody.
            first = place + 1 if said["ends"] == "create" else began
            found.setdefault(said["ends"], []).append((first, place + 1))
    return found

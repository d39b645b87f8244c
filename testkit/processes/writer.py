"""Writer processes under load that can be killed at any moment, and that tell what they were acknowledged."""

from __future__ import annotations

import itertools
import logging
import random  # noqa: TID251 - the process has no sources injected; its seed comes from the test
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Protocol

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.errors import InternalError
from memwal_core.ids import RegionId
from memwal_core.settings import Settings
from memwal_core.writer import RegionWriter, TableWriter
from testkit.processes.start import LONGEST_WAIT_S, start_process
from testkit.tables.people import people

_DELETE_EVERY = 5

Value = str | None


@dataclass(frozen=True, slots=True)
class WriterSite:
    """Where and how processes write.

    Attributes:
        uri: A table of people.
        settings: All settings.
        storage_options: Of the object store.
        threads: Callers of the one writer; each has keys of its own.
        keys: Keys per thread that are written again and again; every put also inserts a key that is never reused.
    """

    uri: str
    settings: Settings
    storage_options: Mapping[str, str] | None = None
    threads: int = 3
    keys: int = 8


Said = tuple[str, int, Sequence[int], Value]
"""``tries`` or ``has``, the thread, its keys and their new value."""


@dataclass(slots=True)
class Acknowledged:
    """What the table may hold after all that was acknowledged: for each key the values that are possible.

    Attributes:
        possible: Key -> values; more than one where a process died before the answer.
        writes: Acknowledged writes.
        unanswered: Writes that a process did not live to hear of.
        tried: All writes that were ever tried, in order: keys and value.
    """

    possible: dict[int, set[Value]] = field(default_factory=dict)
    writes: int = 0
    unanswered: int = 0
    tried: list[tuple[Sequence[int], Value]] = field(default_factory=list)
    _under_way: dict[int, tuple[Sequence[int], Value]] = field(default_factory=dict)

    def hear(self, heard: Sequence[Said]) -> None:
        """Take in what a living process said, in its order."""
        for what, thread, keys, value in heard:
            if what == "tries":
                self._under_way[thread] = (keys, value)
                self.tried.append((keys, value))
                continue
            del self._under_way[thread]
            self.writes += 1
            self.possible.update({key: {value} for key in keys})

    def note(self, heard: Sequence[Said]) -> None:
        """Take in the last words of a process: what it had not heard the end of may have happened or not."""
        self.hear(heard)
        self.unanswered += len(self._under_way)
        self.possible = self.moment()
        self._under_way.clear()

    def moment(self) -> dict[int, set[Value]]:
        """Return what is possible now, writes under way included."""
        possible = {key: set(values) for key, values in self.possible.items()}
        for keys, value in self._under_way.values():
            for key in keys:
                possible.setdefault(key, {None}).add(value)
        return possible

    def wrong(self, found: Mapping[int, str]) -> dict[int, tuple[Value, set[Value]]]:
        """Return key -> what was found and what is possible, where these disagree; nobody may be writing."""
        return _disagreements(self.possible, found)

    def wrong_since(
        self, began: Mapping[int, set[Value]], tried: int, found: Mapping[int, str]
    ) -> dict[int, tuple[Value, set[Value]]]:
        """Return where a read disagrees with everything that was possible since it began.

        Args:
            began: The moment at which it began.
            tried: Length of ``tried`` at that moment.
            found: What it found: key -> value.
        """
        since = {key: set(values) for key, values in began.items()}
        for keys, value in self.tried[tried:]:
            for key in keys:
                since.setdefault(key, {None}).add(value)
        return _disagreements(since, found)


def _disagreements(possible: Mapping[int, set[Value]], found: Mapping[int, str]) -> dict[int, tuple[Value, set[Value]]]:
    return {
        key: (found.get(key), allowed)
        for key in possible.keys() | found.keys()
        if found.get(key) not in (allowed := possible.get(key, {None}))
    }


class WriterProcess:
    """A running writer.

    Args:
        process: The process.
        messages: What it says.
        acknowledged: Writes that are acknowledged when it is there.
    """

    def __init__(self, process: ForkServerProcess, messages: Connection, acknowledged: int) -> None:
        """Wait for its first acknowledgements.

        Raises:
            InternalError: They did not come in time.
        """
        self._process = process
        self._messages = messages
        self._heard: list[Said] = []
        while sum(said[0] == "has" for said in self._heard) < acknowledged:
            if not messages.poll(LONGEST_WAIT_S):
                process.kill()
                raise InternalError("a writer process did not write", remedy="read its output", said=len(self._heard))
            self._heard.append(self._received())

    def said(self) -> list[Said]:
        """Return what it has said since the last call.

        Raises:
            InternalError: It has ended by itself.
        """
        heard, self._heard = self._heard, []
        while self._messages.poll():
            heard.append(self._received())
        return heard

    def kill(self) -> list[Said]:
        """Send SIGKILL, wait for the end, and return what it said since the last call of ``said``.

        Raises:
            InternalError: It had ended by itself.
        """
        ended = self._process.exitcode
        self._process.kill()
        self._process.join()
        try:
            while self._messages.poll():
                self._heard.append(self._messages.recv())
        except (EOFError, OSError):
            pass  # The end of what a killed process said, perhaps in the middle of a message.
        finally:
            self._messages.close()
        if ended is not None:
            raise InternalError("a writer process ended by itself", remedy="read its output", exitcode=ended)
        return self._heard

    def _received(self) -> Said:
        try:
            said: Said = self._messages.recv()
        except EOFError as error:
            raise InternalError("a writer process ended by itself", remedy="read its output") from error
        return said


def start_writer(site: WriterSite, number: int, acknowledged: int = 1) -> WriterProcess:
    """Start a process that takes all regions over and writes until it is killed.

    Args:
        site: Where it writes.
        number: Of the process; every one writes values of its own.
        acknowledged: Writes to wait for.
    """
    return WriterProcess(*start_process(_write_for_ever, site, number), acknowledged)


def start_region_writer(
    site: WriterSite, number: int, region_id: RegionId, *, native: bool, acknowledged: int = 1
) -> WriterProcess:
    """Start a process that takes one region over, with one caller, and writes until it is killed.

    Args:
        site: Where it writes.
        number: Of the process.
        region_id: Its region.
        native: With Lance's own writer instead of ours.
        acknowledged: Writes to wait for.
    """
    target = _write_natively if native else _write_one_region
    return WriterProcess(*start_process(target, site, number, region_id), acknowledged)


class _Speaker:
    """Tells what is tried and what was acknowledged."""

    def __init__(self, messages: Connection) -> None:
        self._messages = messages
        self._lock = threading.Lock()

    def say(self, what: str, thread: int, keys: Sequence[int], value: Value) -> None:
        with self._lock:
            self._messages.send((what, thread, keys, value))


def _write_for_ever(site: WriterSite, number: int, messages: Connection) -> None:
    logging.disable(logging.WARNING)
    table = BaseTable.open(site.uri, storage_options=site.storage_options, settings=site.settings)
    writer = TableWriter.open(table, takeover="fence")
    speaker = _Speaker(messages)
    threads = [
        threading.Thread(target=_call_for_ever, args=(writer, site, number, thread, speaker))
        for thread in range(site.threads)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _write_one_region(site: WriterSite, number: int, region_id: RegionId, messages: Connection) -> None:
    logging.disable(logging.WARNING)
    table = BaseTable.open(site.uri, storage_options=site.storage_options, settings=site.settings)
    writer = RegionWriter.open(table, region_id)
    _call_for_ever(writer, site, number, 0, _Speaker(messages))


def _write_natively(site: WriterSite, number: int, region_id: RegionId, messages: Connection) -> None:
    dataset = lance.dataset(site.uri, storage_options=dict(site.storage_options or {}) or None)
    # Lance refuses to replay a generation that is larger than its own bound, and one that we replayed and went on
    # with may be larger than ours.
    rows = 10 * site.settings.writer.max_memtable_rows
    writer = dataset.mem_wal_writer(str(region_id), max_wal_flush_interval_ms=1, max_memtable_rows=rows)
    _call_for_ever(writer, site, number, 0, _Speaker(messages))


class _Writes(Protocol):
    def put(self, rows: pa.Table) -> object: ...

    def delete(self, keys: pa.Table) -> object: ...


def _call_for_ever(writer: _Writes, site: WriterSite, number: int, thread: int, speaker: _Speaker) -> None:
    rng = random.Random(number * 1000 + thread)  # noqa: S311 - no secret
    own = range(thread * site.keys, (thread + 1) * site.keys)
    for step in itertools.count(1):
        keys = rng.sample(own, k=rng.randint(1, 4))
        is_delete = step % _DELETE_EVERY == 0
        value = None if is_delete else f"{number}.{thread}.{step}"
        if value is None:
            speaker.say("tries", thread, keys, value)
            writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
        else:
            keys.append(_fresh_key(number, thread, step))
            speaker.say("tries", thread, keys, value)
            writer.put(people(*keys, name=value))
        speaker.say("has", thread, keys, value)


def _fresh_key(number: int, thread: int, step: int) -> int:
    return 10**12 + number * 10**7 + thread * 10**5 + step

"""Tables whose files are hostile, and what the process that shows them spends on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import psutil

from memwal_core.format.paths import MANIFEST_SUFFIX, parse_numbered_name
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import parse_region_id
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.fuzz.case import Attack, Case
from testkit.fuzz.kinds import KINDS
from testkit.tables.people import make_people_table, people

_FAR = 2**62
_DEEP = 100_000
_SETTINGS = Settings.model_validate(
    {"storage": {"fsync": False}, "index": {"inline_snapshot_threshold": 0, "snapshot_interval_s": 0}}
)


def _newest(table: Path, pattern: str) -> Path:
    """Return the first file of a pattern by its name: newer manifests have smaller names."""
    return min(table.glob(pattern))


def _region_manifest(table: Path) -> Path:
    return max(table.glob("_mem_wal/*-*/manifest/*.binpb"), key=_version)


def _version(path: Path) -> int:
    return parse_numbered_name(path.name, MANIFEST_SUFFIX) or 0


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _far_generation(table: Path) -> None:
    path = _region_manifest(table)
    region = parse_region_id(path.parent.parent.name)
    manifest = decode_manifest(path.read_bytes(), region_id=region, version=_version(path))
    _replace(path, encode_manifest(replace(manifest, current_generation=_FAR)))


def _deep_ledger(table: Path) -> None:
    for path in table.glob("_mem_wal/_ledger/*/*/[01]*.json"):
        _replace(path, b"[" * _DEEP + b"]" * _DEEP)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _half(path: Path) -> None:
    _replace(path, path.read_bytes()[: path.stat().st_size // 2])


def _random(path: Path) -> None:
    _replace(path, bytes((number * 197 + 71) % 256 for number in range(path.stat().st_size)))


BLOWS: Mapping[str, tuple[Callable[[Path], None], str]] = MappingProxyType(
    {
        "far-generation": (_far_generation, "neither merged"),
        "deep-ledger": (_deep_ledger, "the history of a job cannot be read"),
        "pipe-in-region": (lambda table: _pipe(_region_manifest(table)), "a pipe"),
        "pipe-in-base": (lambda table: _pipe(_newest(table, "_versions/*.manifest")), "left alone"),
        "endless-region": (lambda table: _endless(_region_manifest(table)), "a device"),
        "half-manifest": (lambda table: _half(_newest(table, "_versions/*.manifest")), "torn"),
        "random-snapshot": (
            lambda table: _random(_newest(table, "_indices/*/index.lance")),
            "a region snapshot cannot be read",
        ),
        "random-region": (lambda table: _random(_region_manifest(table)), "cannot be decoded"),
    }
)
"""Table -> what is done to it, and what its page then says."""


def make_struck_tables(directory: Path) -> dict[str, str]:
    """Make a table for each blow and deal it; name -> address."""
    made = {}
    for name, (strike, _) in BLOWS.items():
        path = directory / f"{name}.lance"
        make_people_table(str(path), rows=people(*range(9)), buckets=1, settings=_SETTINGS)
        table = Table.open(str(path), settings=_SETTINGS)
        with table.writer() as writer:
            writer.put(people(*range(5), name="first"))
            writer.flush()
            table.run(MergeRequest())
            writer.put(people(*range(3), name="second"))
            writer.flush()
        table.run(SnapshotRequest())
        strike(path)
        made[name] = str(path)
    return made


@contextmanager
def attacked(attacks: Sequence[Attack]) -> Iterator[None]:
    """Change files, and put them back."""
    kept = {each.path: each.path.read_bytes() if each.path.exists() else None for each in attacks}
    try:
        for each in attacks:
            each.path.unlink(missing_ok=True)
            each.path.write_bytes(each.data)
        yield
    finally:
        for path, before in kept.items():
            path.unlink()
            if before is not None:
                path.write_bytes(before)


def rounds_of_attacks(tables: Mapping[str, Path]) -> Iterator[list[Attack]]:
    """Yield attacks on several tables at once, a case of each kind of file in all; files must be back in between."""
    waiting = [Case(number, kind) for number, kind in enumerate(KINDS)]
    while waiting:
        found = {(attack := each.attack(tables)).maker: (each, attack) for each in reversed(waiting)}
        yield [attack for _, attack in found.values()]
        done = {case for case, _ in found.values()}
        waiting = [each for each in waiting if each not in done]


class Watched:
    """A process with its children.

    Args:
        pid: Of the process.
    """

    def __init__(self, pid: int) -> None:
        """Take note of who is there."""
        self._first = psutil.Process(pid)
        self.pids = self._living()

    def _living(self) -> dict[int, float]:
        return {each.pid: each.create_time() for each in (self._first, *self._first.children(recursive=True))}

    @property
    def is_as_before(self) -> bool:
        """Whether the same processes live."""
        return self._first.is_running() and self._living() == self.pids

    def worked_s(self) -> float:
        """Return the seconds of processor time that all have spent."""
        spent = [psutil.Process(pid).cpu_times() for pid in self.pids]
        return sum((float(each.user + each.system) for each in spent), 0.0)

    def peak_bytes(self) -> int:
        """Return the most memory that one of them ever had."""
        lines = [line for pid in self.pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return max(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))

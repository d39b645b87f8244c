"""Recording a workload: a process under ``strace``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from testkit.powercut.disk import NO_LOSSES, Disk
from testkit.powercut.operations import Recording
from testkit.powercut.replay import Replay
from testkit.powercut.syscalls import TRACED, unsure_paths
from testkit.powercut.workload import DISK_NAME, LIVES, MARKS_NAME
from testkit.rng import seeded_rng

TRACE_NAME = "trace"
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - what is recorded counts, and not the disk below it
_EVERYTHING = "1000000000"
"""Bytes of an argument that strace writes down: more than any call has."""


class RecordingFailedError(Exception):
    """The recorded process failed, or strace is missing."""


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Return a directory for a recording, in memory where there is such a place; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="memwal-powercut-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as own:
        yield Path(own)


def record(directory: Path, workload: int) -> Recording:
    """Run a workload under strace.

    Args:
        directory: Where its tables, its marks and the trace go; made anew.
        workload: Its seed.

    Returns:
        Everything that the process did to its table.

    Raises:
        RecordingFailedError: strace is not installed, the process failed, or it wrote in a way that was not recorded.
        UnknownCallError: The process changed its table in a way that cannot be played back.
    """
    directory = directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    (directory / DISK_NAME).mkdir(parents=True)
    for life in range(LIVES):
        ended = _trace(directory, life, workload)
        if ended.returncode not in _KILLED and (ended.returncode or life < LIVES - 1):
            raise RecordingFailedError(f"the recorded process ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
    recording = read_recording(directory)
    require_complete(recording)
    return recording


def _trace(directory: Path, life: int, workload: int) -> subprocess.CompletedProcess[str]:
    strace = shutil.which("strace")
    if strace is None:
        raise RecordingFailedError("power cuts are recorded with strace, which is missing: apt-get install strace")
    traced = [sys.executable, "-m", "testkit.powercut.workload", os.fspath(directory), str(workload), str(life)]
    trace = os.fspath(directory / f"{TRACE_NAME}-{life}")
    options = ["-f", "-y", "-xx", "-qq", "--seccomp-bpf", "-s", _EVERYTHING, "-e", "signal=none"]
    command = [strace, *options, "-e", f"trace={','.join(TRACED)}", "-o", trace, *traced]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own, no shell


def require_complete(recording: Recording) -> None:
    """Play a recording back whole, and compare with what its process left.

    Raises:
        RecordingFailedError: The process also wrote in a way that was not recorded.
    """
    left = _contents(recording.root)
    Disk(recording, len(recording.operations)).build(seeded_rng(0), NO_LOSSES)
    played = _contents(recording.root)
    certain = {
        name for name in left.keys() | played.keys() if os.path.join(recording.root, name) not in recording.unsure
    }
    differing = sorted(name for name in certain if left.get(name) != played.get(name))
    if differing:
        raise RecordingFailedError(f"what was recorded and what the process left differ in {differing[:10]}")


def _contents(root: str) -> dict[str, bytes]:
    paths = {os.path.relpath(path, root): path for path in Path(root).rglob("*")}
    return {name: path.read_bytes() if path.is_file() else b"a directory" for name, path in paths.items()}


def read_recording(directory: Path) -> Recording:
    """Read the trace of a recording, which must lie where it was made.

    Raises:
        RecordingFailedError: There is no trace of a table there.
        UnknownCallError: The process changed its table in a way that cannot be played back.
    """
    directory = directory.resolve()
    replay = Replay(os.fspath(directory / DISK_NAME), os.fspath(directory / MARKS_NAME))
    unsure: set[str] = set()
    for life in range(LIVES):
        lines = (directory / f"{TRACE_NAME}-{life}").read_text(encoding="ascii").splitlines()
        replay.play(lines)
        unsure |= unsure_paths(lines)
    recording = replace(replay.recording(), unsure=frozenset(unsure))
    if not any("finished" in said for _, said in recording.marks()):
        raise RecordingFailedError(f"the recording in {directory} was made elsewhere, or its process did not finish")
    return recording

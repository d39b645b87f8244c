"""Watches workers: what a case did is known even if the process did not survive it."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from memwal_core.clock import SystemClock
from testkit.fuzz.case import Case
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.looks import READS_PAGES

MOST_SECONDS = 5.0
"""What a look may take of processor time, or of time in which the process does nothing."""
_MOST_WAITING_S = 60.0
"""For a look that neither ends nor works: a busy machine may keep it waiting."""
MOST_BYTES = 1 << 30
_CASES_PER_WORKER = 400
_DECODED_AT_ONCE = 50
_POLL_S = 0.2
_CLOCK = SystemClock()
_START_S = 600.0
_SAID_AT_THE_END = 20_000


@dataclass(frozen=True, slots=True)
class Harm:
    """A case that did harm.

    Attributes:
        case: To run it again.
        attack: Which file was changed, and how.
        problem: What happened.
    """

    case: Case
    attack: str
    problem: str

    def __str__(self) -> str:
        """Say how to run it again, and what happened."""
        decoder = " --decoders" if self.case.decoder_only else ""
        again = f"python -m testkit.fuzz --seed {self.case.seed} --kind '{self.case.kind}'{decoder}"
        return f"{again}\n  {self.attack}\n  {self.problem}"


class HarmfulError(Exception):
    """The worker had to be stopped, or died.

    Attributes:
        of_pages: Whether Lance may do the same to whoever decodes forged pages: end the process, or fill its memory.
    """

    def __init__(self, what: str, *, of_pages: bool = False) -> None:
        """Say what happened."""
        super().__init__(what)
        self.of_pages = of_pages


class WatchedWorker:
    """One worker at a time, replaced when it died or is old.

    Args:
        directory: Where workers have their tables.
        without: What is switched off in them (``WITHOUT``).

    Attributes:
        ended_by_lance: Cases in which Lance ended the process, or it had to be, while pages were decoded.
    """

    def __init__(self, directory: Path, without: Sequence[str] = ()) -> None:
        """Start nothing yet."""
        self._directory = directory
        self._without = without
        self.ended_by_lance = 0
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ran = 0
        self._pending = b""

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the worker."""
        self._stop()

    def run(self, case: Case) -> list[Harm]:
        """Run one case."""
        most = _CASES_PER_WORKER * (_DECODED_AT_ONCE if case.decoder_only else 1)
        if self._process is None or self._ran >= most:
            self._stop()
            self._start()
        self._ran += 1
        attack = look = ""
        try:
            self._send(asdict(case))
            for message in self._messages():
                attack, look = message.get("attack", attack), message.get("look", look)
                if "problems" in message:
                    return [Harm(case, attack, each) for each in message["problems"]]
        except HarmfulError as error:
            self._stop()
            if KINDS[case.kind].has_pages and look in READS_PAGES and error.of_pages:
                self.ended_by_lance += 1  # docs/security.md says so: pages may also unfold to gigabytes.
                return []
            return [Harm(case, attack, f"{look}: {error}")]
        raise AssertionError("a worker says how a case ended")

    def _start(self) -> None:
        self._number += 1
        place = self._directory / f"worker-{self._number}"
        place.mkdir(parents=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "RUST_BACKTRACE": "0", "TMPDIR": str(place)}
        with (place.with_suffix(".log")).open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "testkit.fuzz.worker", str(place), *self._without],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._ran, self._pending = 0, b""
        for message in self._messages(longest_s=_START_S):
            if "ready" in message:
                return

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            shutil.rmtree(self._directory / f"worker-{self._number}", ignore_errors=True)

    def _send(self, message: object) -> None:
        assert self._process is not None and self._process.stdin is not None  # noqa: S101, PT018 - it runs
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _messages(self, longest_s: float = MOST_SECONDS) -> Iterator[dict[str, Any]]:
        """Yield what the worker says.

        Raises:
            HarmfulError: It ended, took too long between two messages, or too much memory.
        """
        assert self._process is not None and self._process.stdout is not None  # noqa: S101, PT018 - it runs
        pid, stdout = self._process.pid, self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            since, worked = _CLOCK.monotonic(), _processor_s(pid)
            while True:
                peak = _peak_bytes(pid)
                if peak > MOST_BYTES and longest_s == MOST_SECONDS:
                    raise HarmfulError(f"took {peak >> 20} MiB\n{self._stacks()}", of_pages=True)
                if selector.select(_POLL_S):
                    received = os.read(stdout.fileno(), 1 << 16)
                    if not received:
                        raise HarmfulError(
                            f"the process ended with {self._process.wait()}\n{self._said()}", of_pages=True
                        )
                    *lines, self._pending = (self._pending + received).split(b"\n")
                    yield from map(json.loads, lines)
                    since, worked = _CLOCK.monotonic(), _processor_s(pid)
                    continue
                waited = _CLOCK.monotonic() - since
                busy = _processor_s(pid) - worked
                if busy > longest_s or waited > max(longest_s, _MOST_WAITING_S):
                    # Who waits without work may wait for a process that decodes.
                    text = f"did not end in {waited:.1f} s, {busy:.1f} s of processor\n{self._stacks()}"
                    raise HarmfulError(text, of_pages=busy <= longest_s)

    def _stacks(self) -> str:
        assert self._process is not None  # noqa: S101 - it runs
        self._process.send_signal(signal.SIGUSR1)
        _CLOCK.sleep(1)
        return self._said()

    def _said(self) -> str:
        log = self._directory / f"worker-{self._number}.log"
        return log.read_bytes()[-_SAID_AT_THE_END:].decode(errors="replace")


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    line = next((each for each in status.splitlines() if each.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) << 10


def _processor_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_cases(
    chosen: Iterable[Case], directory: Path, without: Sequence[str] = ()
) -> Iterator[tuple[Case, list[Harm]]]:
    """Run cases one after another in workers; each case with what it did.

    Args:
        chosen: The cases.
        directory: For the tables; what lies there stays below it.
        without: What is switched off in the workers (``WITHOUT``).
    """
    with WatchedWorker(directory, without) as worker:
        for case in chosen:
            yield case, worker.run(case)

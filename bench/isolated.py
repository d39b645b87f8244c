"""Run one way of doing something in a process of its own, and measure the memory of all processes it starts.

``run_isolated`` starts ``python -m bench.isolated module:function``, hands the arguments over as JSON
and gets the measured values back as JSON, on the last line of what the process prints.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

PEAK = "peak MiB"
"""Most that all processes held together at one moment, as sampled."""

LARGEST = "largest process MiB"
"""Most that one process ever held, as the kernel counts it."""

_SAMPLE_S = 0.05
_KIB_PER_MIB = 1024
_TAIL = 2000


class IsolatedError(RuntimeError):
    """The process failed, or took too long; the text ends with what it printed last."""


def run_isolated(target: str, arguments: Mapping[str, object], *, timeout_s: float) -> dict[str, float]:
    """Call a function in a process of its own.

    Args:
        target: ``module:function``; it takes the arguments by name and returns measured values.
        arguments: JSON-able.
        timeout_s: The process is killed after that.

    Returns:
        What the function returned, with ``PEAK`` and ``LARGEST`` in MiB.

    Raises:
        IsolatedError: It failed.
    """
    command = [sys.executable, "-m", "bench.isolated", target]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watched = _Memory(process.pid)
    watched.start()
    try:
        out, err = process.communicate(json.dumps(arguments), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it started holds its pipes open
        process.communicate()
        raise IsolatedError(f"{target} took longer than {timeout_s:.0f} s") from None
    finally:
        watched.stop()
    if process.returncode != 0:
        raise IsolatedError(f"{target} ended with {process.returncode}: {err[-_TAIL:]}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return {**found, PEAK: watched.peak_mib, LARGEST: watched.largest_mib}


class _Memory(threading.Thread):
    """Samples the memory of a process and its descendants until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True, name="bench-memory")
        self._pid = pid
        self._stopped = threading.Event()
        self.peak_mib = self.largest_mib = 0.0

    def run(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            found = [_memory(pid) for pid in _tree(self._pid)]
            self.peak_mib = max(self.peak_mib, sum(now for now, _ in found) / _KIB_PER_MIB)
            self.largest_mib = max(self.largest_mib, max((high for _, high in found), default=0) / _KIB_PER_MIB)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # it has ended
        return
    for task in tasks:
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _tree(int(child))


def _memory(pid: int) -> tuple[int, int]:
    """Return what a process holds now and held at most, in KiB; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    values = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return tuple(int(values.get(name, "0 kB").split()[0]) for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def main() -> None:
    """Call the function that the command line names."""
    module, _, name = sys.argv[1].partition(":")
    found = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
    # On a line of its own, and before the interpreter ends: libraries print too, and may fail then.
    print("\n" + json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

"""A Spark cluster of processes on this machine: one master, two workers with one core each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyspark

from demo.stack.stack import free_port
from memwal_core.clock import SystemClock

CLOCK = SystemClock()

Daemon = subprocess.Popen[bytes]
"""A process of the cluster."""

_HOME = Path(pyspark.__file__).parent
_LAUNCH = str(_HOME / "bin" / "spark-class")


def ask(address: str, body: Any = None, token: str = "") -> Any:
    """Return the JSON answer of a server."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    with urlopen(Request(address, data=data, headers=headers), timeout=300) as answer:
        return json.loads(answer.read())


def until(question: Any, seconds: float = 600) -> None:
    """Wait for something to become true."""
    end = CLOCK.monotonic() + seconds
    while not question():
        assert CLOCK.monotonic() < end, "it did not happen in time"
        CLOCK.sleep(0.2)


def start_spark(cleanup: ExitStack, root: Path, variables: Mapping[str, str], master: int, ui: int) -> list[Daemon]:
    """Start a master and two workers; return the workers."""
    boss = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(master)]
    _start(cleanup, root / "master.log", [_LAUNCH, *boss, "--webui-port", str(ui)], _variables(variables))
    until(lambda: _answers(f"http://127.0.0.1:{ui}/json/"))
    workers = [start_worker(cleanup, root, variables, master) for _ in range(2)]
    until(lambda: ask(f"http://127.0.0.1:{ui}/json/")["aliveworkers"] == 2)
    return workers


def start_worker(cleanup: ExitStack, root: Path, variables: Mapping[str, str], master: int) -> Daemon:
    """Start one more worker of a master."""
    own = free_port()
    here = ["--host", "127.0.0.1", "--webui-port", str(own), "--cores", "1", "--memory", "1g"]
    worker = ["org.apache.spark.deploy.worker.Worker", *here, "--work-dir", str(root / f"work{own}")]
    command = [_LAUNCH, *worker, f"spark://127.0.0.1:{master}"]
    return _start(cleanup, root / f"worker{own}.log", command, _variables(variables))


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {**variables, "SPARK_HOME": str(_HOME), "SPARK_PUBLIC_DNS": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _start(cleanup: ExitStack, log: Path, arguments: list[str], variables: Mapping[str, str]) -> Daemon:
    sink = cleanup.enter_context(log.open("wb"))
    process = subprocess.Popen(arguments, env=dict(variables), stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    cleanup.callback(_end, process)
    return process


def _end(process: Daemon) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

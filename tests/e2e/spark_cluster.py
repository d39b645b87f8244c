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


def start_spark(
    cleanup: ExitStack, root: Path, variables: Mapping[str, str], master: int, ui: int
) -> list[subprocess.Popen[bytes]]:
    """Start a master and two workers; return the workers."""
    home = Path(pyspark.__file__).parent
    spark = {**variables, "SPARK_HOME": str(home), "SPARK_PUBLIC_DNS": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    launch, deploy = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    here = ["--host", "127.0.0.1"]
    boss = [f"{deploy}.master.Master", *here, "--port", str(master), "--webui-port", str(ui)]
    _start(cleanup, root / "master.log", [launch, *boss], spark)
    until(lambda: _answers(f"http://127.0.0.1:{ui}/json/"))
    workers = []
    for number in (1, 2):
        more = [*here, "--webui-port", str(free_port()), "--cores", "1", "--memory", "1g"]
        worker = [f"{deploy}.worker.Worker", *more, "--work-dir", str(root / f"work{number}")]
        log = root / f"worker{number}.log"
        workers.append(_start(cleanup, log, [launch, *worker, f"spark://127.0.0.1:{master}"], spark))
    until(lambda: ask(f"http://127.0.0.1:{ui}/json/")["aliveworkers"] == 2)
    return workers


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _start(
    cleanup: ExitStack, log: Path, arguments: list[str], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    sink = cleanup.enter_context(log.open("wb"))
    process = subprocess.Popen(arguments, env=dict(variables), stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    cleanup.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

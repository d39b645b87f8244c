"""A Spark cluster of processes on this machine."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyspark

from memwal_core.clock import SystemClock

CLOCK = SystemClock()

Daemon = subprocess.Popen[bytes]
"""A process of the cluster."""

_HOME = Path(pyspark.__file__).parent
_LAUNCH = str(_HOME / "bin" / "spark-class")


def ask(address: str, body: object = None, token: str = "", method: str | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON answer of a server; None if it is empty. Without a method, what has a body is a POST."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = Request(address, data=data, headers=headers, method=method)  # noqa: S310 - loopback
    with urlopen(request, timeout=300) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def until(question: Callable[[], object], seconds: float = 600, every_s: float = 0.2) -> None:
    """Wait for something to become true; what answers may need a core that the question would take from it."""
    end = CLOCK.monotonic() + seconds
    while not question():
        if CLOCK.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        CLOCK.sleep(every_s)


def start_spark(cleanup: ExitStack, root: Path, variables: Mapping[str, str], master: int, ui: int) -> list[Daemon]:
    """Start a master and two workers with one core each; return the workers."""
    start_master(cleanup, root, variables, master, ui)
    workers = [start_worker(cleanup, root, variables, master) for _ in range(2)]
    until_alive(ui, workers=2)
    return workers


def start_master(cleanup: ExitStack, root: Path, variables: Mapping[str, str], port: int, ui: int) -> Daemon:
    """Start a master; its logs and those of its workers go to a directory."""
    boss = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    master = _start(cleanup, root / "master.log", [_LAUNCH, *boss, "--webui-port", str(ui)], _variables(variables))
    until(lambda: _answers(f"http://127.0.0.1:{ui}/json/"))
    return master


def start_worker(
    cleanup: ExitStack, root: Path, variables: Mapping[str, str], master: int, core: int | None = None
) -> Daemon:
    """Start one more worker of a master: one slot; everything on it is bound to a core, if one is named."""
    own = Path(tempfile.mkdtemp(dir=root, prefix="work"))
    here = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
    worker = ["org.apache.spark.deploy.worker.Worker", *here, "--work-dir", str(own)]
    command = [_LAUNCH, *worker, f"spark://127.0.0.1:{master}"]
    bound = [] if core is None else ["taskset", "-c", str(core)]
    return _start(cleanup, own.with_suffix(".log"), [*bound, *command], _variables(variables))


def until_alive(ui: int, *, workers: int) -> None:
    """Wait until a master knows so many workers."""
    until(lambda: ask(f"http://127.0.0.1:{ui}/json/")["aliveworkers"] == workers)


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {**variables, "SPARK_HOME": str(_HOME), "SPARK_PUBLIC_DNS": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _start(cleanup: ExitStack, log: Path, arguments: list[str], variables: Mapping[str, str]) -> Daemon:
    sink = cleanup.enter_context(log.open("wb"))
    process = subprocess.Popen(  # noqa: S603 - of this machine
        arguments, env=dict(variables), stdout=sink, stderr=sink, stdin=subprocess.DEVNULL
    )
    cleanup.callback(_end, process)
    return process


def _end(process: Daemon) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""The embedded stack: Airflow's servers on this machine, SQLite, local Spark, and a table to maintain."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from demo.airflow import Checkout, airflow_environment, register_tables
from demo.directory import DemoDirectory
from demo.stack.marked import descendants, end_processes, marked
from memwal_core.clock import Clock
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.rng import Rng, system_rng

STATE = "stack.json"
"""File that remembers the processes, so that another command can stop them."""

ADMIN = "admin"
HOST = "127.0.0.1"

SERVERS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "api-server": (),
        "scheduler": ("--skip-serve-logs",),
        "dag-processor": (),
        "triggerer": ("--skip-serve-logs",),
    }
)
"""Airflow's servers, with the arguments of each."""

_HEALTH_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_AIRFLOW = "airflow"
_POLL_S = 0.5
_KILL_AFTER_S = 20.0
_HEALTHY_AFTER_S = 600.0
_SAME_START_S = 2.0
"""A start is counted from the system's, which moves by as much when the clock is corrected."""
_LASTING_PORTS = (15_000, 32_768)
"""Below the ports that systems give to clients: such a port may be taken between its choice and its use."""
_PORT_TRIES = 100
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9._-]+)+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack.

    Attributes:
        address: Of Airflow's page.
        password: Of the user ``admin``.
        servers: Process id -> when it started, in seconds since 1970; each leads a session of its own.
    """

    address: str
    password: str
    servers: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was ended.

    Attributes:
        address: Of the stack's page; empty if its state was lost.
        servers: Servers that still ran.
        others: Other processes of the stack: its tasks, their Spark drivers, what servers that died left behind.
    """

    address: str
    servers: int
    others: int


def free_port() -> int:
    """Return a port of this machine that nobody listens on now, and that the system lends to no client meanwhile.

    Raises:
        UnavailableError: None was found.
    """
    rng = system_rng()
    for _ in range(_PORT_TRIES):
        port = rng.randrange(*_LASTING_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise UnavailableError("no free port was found", remedy="end programs that listen on many", tried=_PORT_TRIES)


def stack_environment(
    directory: DemoDirectory,
    checkout: Checkout,
    java_home: str | None,
    inherited: Mapping[str, str],
    *,
    port: int,
    rng: Rng,
) -> dict[str, str]:
    """Compose the variables of all servers; secrets are new for each stack and stay in its directory.

    Args:
        directory: Of the stack.
        checkout: Where DAGs and plugins are.
        java_home: As ``find_java`` returns it.
        inherited: The variables of this process.
        port: Of Airflow's page.
        rng: Where the secrets come from.
    """
    address = f"http://{HOST}:{port}"
    return {
        **airflow_environment(directory, checkout, java_home, inherited),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(checkout.root / "plugins"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,viewer:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(directory.airflow_home / "passwords.json"),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        # The servers find the execution API through this: it has to follow the port.
        "AIRFLOW__API__BASE_URL": address,
        # On a busy machine the one API process may need longer than the usual five seconds.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__API__SECRET_KEY": rng.randbytes(32).hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": rng.randbytes(64).hex(),
        "MAINTENANCE_POOLS": "true",
        "MAINTENANCE_RETRIES": "2",
        "LANCE_LOG": "error,lance::index=off",
    }


def served_under(environment: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the variables of servers that answer under a path, as behind a reverse proxy.

    Args:
        environment: As ``stack_environment`` returns it.
        path: For example ``/airflow``; empty for none.

    Raises:
        InvalidRequestError: It is not a plain path.
    """
    if path and not _PLAIN_PATH.fullmatch(path):
        raise InvalidRequestError("this is not a plain path", remedy="write it as in /airflow", path=path)
    return {**environment, "AIRFLOW__API__BASE_URL": environment["AIRFLOW__API__BASE_URL"] + path}


def start_stack(
    directory: DemoDirectory, environment: Mapping[str, str], tables: Mapping[str, str], clock: Clock, rng: Rng
) -> Stack:
    """Make the database, the users and pools, and start the servers; all carry the mark of the directory.

    Args:
        directory: An empty one.
        environment: As ``stack_environment`` returns it.
        tables: Name -> address of the tables to register.
        clock: Measures and waits.
        rng: Where passwords come from.

    Returns:
        The stack, whose servers answer.

    Raises:
        UnavailableError: A server did not come up; its log is in the directory, and all are stopped again.
    """
    password = rng.randbytes(9).hex()
    environment = marked(environment, _mark(directory))
    directory.airflow_home.mkdir(parents=True, exist_ok=True)
    passwords = directory.airflow_home / "passwords.json"
    passwords.write_text(json.dumps({ADMIN: password, "viewer": rng.randbytes(9).hex()}))
    passwords.chmod(0o600)
    register_tables(directory, tables)
    _run((_AIRFLOW, "db", "migrate"), "migrate", directory, environment)
    pools = Path(environment["AIRFLOW__CORE__DAGS_FOLDER"]) / "pools.json"
    _run((_AIRFLOW, "pools", "import", str(pools)), "pools", directory, environment)
    processes = [start_server(name, directory, environment) for name in SERVERS]
    stack = Stack(
        environment["AIRFLOW__API__BASE_URL"], password, {process.pid: _started(process.pid) for process in processes}
    )
    state = {"address": stack.address, "password": stack.password, "servers": dict(stack.servers)}
    (directory.root / STATE).write_text(json.dumps(state))
    (directory.root / STATE).chmod(0o600)
    try:
        _await_health(stack, processes, directory, clock)
    except BaseException:
        stop_stack(directory, clock)
        raise
    return stack


def load_stack(directory: DemoDirectory) -> Stack | None:
    """Return the stack that was started in a directory; None if there is none."""
    path = directory.root / STATE
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    return Stack(found["address"], found["password"], {int(pid): start for pid, start in found["servers"].items()})


def stop_stack(directory: DemoDirectory, clock: Clock) -> Stopped | None:
    """End all processes of a stack: ask each server, kill what is left of them, then end everything that they started.

    Repeating it does nothing. It also works if servers were killed, or if the file that remembers them is gone.

    Args:
        directory: Of the stack.
        clock: Measures and waits.

    Returns:
        What was ended; None if there was neither a stack nor a process of one.
    """
    stack = load_stack(directory)
    alive = _alive(stack) if stack is not None else []
    started = descendants(alive)
    if stack is not None:
        _end_servers(stack, alive, clock)
    others = end_processes(_mark(directory), clock, started)
    if stack is None:
        return Stopped("", 0, others) if others else None
    (directory.root / STATE).unlink()
    return Stopped(stack.address, len(alive), others)


def _end_servers(stack: Stack, alive: Sequence[int], clock: Clock) -> None:
    # Only the leaders: a signal to the whole group makes the scheduler wait for its workers for ever.
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = clock.monotonic() + _KILL_AFTER_S
    while _alive(stack) and clock.monotonic() < until:
        clock.sleep(_POLL_S)
    for pid in alive:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    _alive(stack)  # whoever was this process's child is taken note of


def _mark(directory: DemoDirectory) -> str:
    return str(directory.root.resolve())


def _run(arguments: Sequence[str], name: str, directory: DemoDirectory, environment: Mapping[str, str]) -> None:
    log = directory.logs / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        ended = subprocess.run(  # noqa: S603 - our own programs, no shell
            arguments, env=dict(environment), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, check=False
        )
    if ended.returncode:
        raise UnavailableError("Airflow could not be prepared", remedy="read the log", step=name, log=str(log))


def start_server(name: str, directory: DemoDirectory, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start one of Airflow's servers; its output goes to the end of its log.

    Args:
        name: One of ``SERVERS``.
        directory: Of the stack.
        environment: As ``stack_environment`` returns it.
    """
    with (directory.logs / f"{name}.log").open("ab") as sink:
        return subprocess.Popen(  # noqa: S603 - our own programs, no shell
            (_AIRFLOW, name, *SERVERS[name]),
            env=marked(environment, _mark(directory)),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await_health(
    stack: Stack, processes: Sequence[subprocess.Popen[bytes]], directory: DemoDirectory, clock: Clock
) -> None:
    until = clock.monotonic() + _HEALTHY_AFTER_S
    while not _is_healthy(stack):
        dead = [name for name, process in zip(SERVERS, processes, strict=True) if process.poll() is not None]
        if dead or clock.monotonic() > until:
            raise UnavailableError(
                "the stack did not come up", remedy="read the logs", ended=dead, logs=str(directory.logs)
            )
        clock.sleep(_POLL_S)


def _is_healthy(stack: Stack) -> bool:
    try:
        with urlopen(f"{stack.address}/api/v2/monitor/health", timeout=5) as answer:  # noqa: S310 - http, our own
            found = json.loads(answer.read())
    except (URLError, OSError, ValueError):
        return False
    return all(found.get(part, {}).get("status") == "healthy" for part in _HEALTH_PARTS)


def _alive(stack: Stack) -> list[int]:
    """Return the servers that still run; a later process with the same number started at another time."""
    for pid in stack.servers:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # if this process started it, its end must be noticed
    return [pid for pid, start in stack.servers.items() if start and abs(_started(pid) - start) < _SAME_START_S]


def _started(pid: int) -> float:
    """Return when a process started, in seconds since 1970; 0 if it has ended."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return 0.0


def running_stack(directory: DemoDirectory) -> Stack | None:
    """Return the stack that runs in a directory; None if there is none or all its servers have ended.

    Raises:
        InvalidRequestError: Some of its servers have ended. Read their logs, and stop the others.
    """
    stack = load_stack(directory)
    alive = _alive(stack) if stack is not None else []
    if stack is None or not alive:
        return None
    ended = [name for name, pid in zip(SERVERS, stack.servers, strict=True) if pid not in alive]
    if ended:
        raise InvalidRequestError(
            "only a part of the stack runs", remedy="read the logs, run 'make down', then 'make up'", ended=ended,
            logs=str(directory.logs),
        )  # fmt: skip
    return stack

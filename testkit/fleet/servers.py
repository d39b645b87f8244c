"""The servers that maintain and watch the fleet."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from demo.directory import claim_directory
from demo.stack.marked import descendants
from demo.stack.stack import SERVERS, free_port, start_server, start_stack, stop_stack
from memwal_core.rng import system_rng
from testkit.fleet.tables import LAKE, SILENT, FleetTable
from testkit.processes.platform import AirflowClient, cluster_variables, spark_drivers
from testkit.processes.spark_cluster import CLOCK, start_spark, start_worker
from testkit.s3_server import S3Server

SETTINGS: Mapping[str, str] = {
    "MEMWAL_WRITER__MAX_MEMTABLE_AGE_S": "240",
    "MEMWAL_MERGE_TRIGGERS__MAX_AGE_S": "300",
    # Small enough that the larger tables are work for Spark.
    "MEMWAL_DISPATCH__MAX_BYTES": "2000000",
}
"""Of everything that works on the fleet, besides the defaults."""

_COMMAND = (sys.executable, "-c", "from memwal_core.cli import main; main()")
_PAGE = "memwal/"


class FleetServers:
    """Airflow's servers, a Spark cluster and a watch.

    Args:
        cleanup: Ends them.
        directory: An empty one.
        s3: Where the remote tables are.
        tables: The registry names all of them.
    """

    def __init__(self, cleanup: ExitStack, directory: Path, s3: S3Server, tables: tuple[FleetTable, ...]) -> None:
        """Start everything."""
        self._cleanup, self._root, self._master = cleanup, directory, free_port()
        self._stack = claim_directory(directory / "stack")
        registry = directory / "tables.toml"
        registry.write_text("\n".join(table.to_toml() for table in tables))
        cluster = cluster_variables(self._stack, self._master, system_rng().randbytes(16).hex())
        self._variables = {**cluster, **SETTINGS, **self._of_airflow(registry, s3)}
        self._of_spark = {name: value for name, value in self._variables.items() if not name.startswith("AIRFLOW")}
        self._workers = start_spark(cleanup, directory, self._of_spark, self._master, free_port())
        cleanup.callback(stop_stack, self._stack, CLOCK)
        started = start_stack(self._stack, self._variables, {}, CLOCK, system_rng())
        self._servers = dict(zip(SERVERS, started.servers, strict=True))
        self.airflow = AirflowClient(started)
        self.watch_port = free_port()
        self._start_watch(registry, s3)

    def page(self) -> str:
        """Return the page that lists all tables."""
        return self.airflow.page(_PAGE)

    def kill_server(self, name: str, *, with_tasks: bool) -> None:
        """Kill one of Airflow's servers, also all that it has started if that is asked for, and start it again."""
        pid = self._servers[name]
        found = descendants([pid]) if with_tasks else []
        with suppress(psutil.NoSuchProcess):
            found = [psutil.Process(pid), *found]
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait()
        self._start_again(name)

    def start_dead(self) -> list[str]:
        """Start servers again that have ended by themselves, as an operator's system does; return their names."""
        dead = [name for name, pid in self._servers.items() if not _lives(pid)]
        for name in dead:
            self._start_again(name)
        return dead

    def kill_worker(self, number: int) -> None:
        """Kill one of the two workers of Spark and what it runs, and start another."""
        worker = self._workers.pop(number)
        for process in [*psutil.Process(worker.pid).children(recursive=True), worker]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        worker.wait()
        self._workers.append(start_worker(self._cleanup, self._root, self._of_spark, self._master))

    def drivers(self) -> list[psutil.Process]:
        """Return the Spark drivers at work."""
        return spark_drivers(self._stack)

    def tasks(self) -> list[psutil.Process]:
        """Return the processes of the scheduler's executor: its workers, tasks, and what those have started."""
        return descendants([self._servers["scheduler"]])

    def _start_again(self, name: str) -> None:
        self._servers[name] = start_server(name, self._stack, self._variables).pid

    def _of_airflow(self, registry: Path, s3: S3Server) -> dict[str, str]:
        options = dict(s3.storage_options)
        key, secret = options.pop("aws_access_key_id"), options.pop("aws_secret_access_key")
        lake = {"conn_type": "lance", "login": key, "password": secret, "extra": options}
        silent = {**lake, "extra": {**options, "aws_endpoint": f"http://127.0.0.1:{self._listen()}"}}
        return {
            "AIRFLOW__CORE__PARALLELISM": "4",
            "MAINTENANCE_SCHEDULE": "*/5 * * * *",
            "MAINTENANCE_RETRIES": "4",
            "MAINTENANCE_TABLES": str(registry),
            f"AIRFLOW_CONN_{LAKE.upper()}": json.dumps(lake),
            f"AIRFLOW_CONN_{SILENT.upper()}": json.dumps(silent),
        }

    def _listen(self) -> int:
        """Return a port where connections are accepted, by the system, and nothing is ever answered."""
        listener = self._cleanup.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1_000))
        return int(listener.getsockname()[1])

    def _start_watch(self, registry: Path, s3: S3Server) -> None:
        log = self._cleanup.enter_context((self._root / "watch.log").open("wb"))
        watch = subprocess.Popen(  # noqa: S603 - our own program, no shell
            (*_COMMAND, "watch", "--registry", str(registry), "--port", str(self.watch_port)),
            # It has no connections of Airflow's, but the credentials of the lake.
            env={**self._variables, **s3.environment()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._cleanup.callback(watch.wait)
        self._cleanup.callback(watch.terminate)


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

"""The topology of docker-compose.yaml as plain processes: Airflow's servers, a Spark cluster, an S3 server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import psutil
import pytest

from demo.directory import DemoDirectory, claim_directory
from demo.stack.marked import marked, marked_processes
from demo.stack.stack import Stack, free_port, start_stack, stop_stack
from memwal_core.base_table import BaseTable
from memwal_core.format.paths import LEDGER_DIRECTORY
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.rng import system_rng
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.processes.platform import AirflowClient, cluster_variables, spark_drivers
from testkit.processes.spark_cluster import CLOCK, start_spark, until
from testkit.s3_server import BUCKET, S3Server, s3_server
from testkit.tables.people import make_people_table, people
from tests.integration.airflow.processes import jobs_of, whatever_was_written

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    # The servers outlive the objects that started them, and are stopped by their numbers.
    pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning"),
]

ROWS = 20_000
STORE_KEY, STORE_SECRET = "CANARYstorekey0123456789", "CANARYstore/secret+0123456789"
"""Of the connection alone; the store takes any."""
OF_THE_CLUSTER = "CANARY0cluster0123456789abcdef0123"
OF_AIRFLOW = {
    "AIRFLOW__API__SECRET_KEY": "CANARYapi0123456789abcdef",
    "AIRFLOW__API_AUTH__JWT_SECRET": "CANARYjwt0123456789abcdef" * 3,
    "AIRFLOW__CORE__FERNET_KEY": "CANARYfernet0123456789abcdef0123456789abcde=",
    "AIRFLOW_CONN_OTHER": "postgresql://somebody:CANARYother0123456789@127.0.0.1/other",
}
TABLE = f"s3://{BUCKET}/people.lance"


class Platform:
    """Everything that runs."""

    def __init__(
        self,
        directory: DemoDirectory,
        stack: Stack,
        workers: list[subprocess.Popen[bytes]],
        storage: Mapping[str, str],
    ):
        self.workers, self.storage = workers, storage
        self.directory, self.stack = directory, stack
        self.seen: dict[int, tuple[str, str]] = {}
        self.airflow = AirflowClient(stack)

    def wait(self, dag: str, run: str) -> str:
        """Return how a run ended; until then look at the processes of Spark again and again."""

        def has_ended() -> bool:
            self.look()
            return self.airflow.has_ended(dag, run)

        until(has_ended, 1200, every_s=1)
        return self.airflow.state(dag, run)

    def processes(self) -> list[psutil.Process]:
        return marked_processes(str(self.directory.root.resolve()))

    def look(self) -> None:
        """Keep command line and environment of every Spark process."""
        self.seen.update(jobs_of(self.directory.root.parent))


def _is_suspended(driver: psutil.Process) -> bool:
    """Stop a driver where it is, else it may end by itself before anything looks for it."""
    try:
        driver.suspend()
        return bool(driver.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def _first_at_work(platform: Platform) -> subprocess.Popen[bytes]:
    """Wait for a worker whose executor runs Python: earlier, the job would not even count it.

    It may be either: a quick executor leaves the other nothing to do.
    """
    busy: list[subprocess.Popen[bytes]] = []
    until(lambda: busy.extend(filter(_runs_tasks, platform.workers)) or busy)
    return busy[0]


def _runs_tasks(worker: subprocess.Popen[bytes]) -> bool:
    processes = psutil.Process(worker.pid).children(recursive=True)
    return any("pyspark.daemon" in _command(process) for process in processes)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _lives(process: psutil.Process) -> bool:
    """Whether a process runs; one that ended may stay listed until somebody takes note of it."""
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("platform")
    with s3_server() as s3, ExitStack() as cleanup:
        table = make_people_table(TABLE, storage_options=s3.storage_options, buckets=8)
        table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
        directory = claim_directory(root / "stack")
        master, ui = free_port(), free_port()
        variables = _variables(directory, s3, master)
        of_spark = {name: value for name, value in variables.items() if not name.startswith("AIRFLOW")}
        workers = start_spark(cleanup, root, of_spark, master, ui)
        cleanup.callback(stop_stack, directory, CLOCK)
        stack = start_stack(directory, variables, {}, CLOCK, system_rng())
        (directory.root / "tables.toml").write_text(
            f'[[tables]]\nname = "people"\nuri = "{TABLE}"\nconnection = "lake"\n'
        )
        yield Platform(directory, stack, workers, s3.storage_options)


def _variables(directory: DemoDirectory, s3: S3Server, master: int) -> dict[str, str]:
    """Return the variables of Airflow's servers, which know the object store from a connection alone."""
    events = directory.root.parent / "events"
    events.mkdir()
    told = f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
    options = {**s3.storage_options, "aws_access_key_id": STORE_KEY, "aws_secret_access_key": STORE_SECRET}
    key, secret = options.pop("aws_access_key_id"), options.pop("aws_secret_access_key")
    return {
        **cluster_variables(directory, master, OF_THE_CLUSTER, told),
        "MEMWAL_MERGE__EXECUTORS_MIN_BYTES": "0",
        "MEMWAL_DISPATCH__MAX_OBJECTS": "0",  # so that the merge, of a few generations, is not done in the worker
        **OF_AIRFLOW,
        "AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "lance", "login": key, "password": secret, "extra": options}),
    }


def test_merge_survives_the_death_of_a_worker(platform: Platform) -> None:
    table = BaseTable.open(TABLE, storage_options=platform.storage)
    with TableWriter.open(table) as writer:
        for number in range(3):
            writer.put(people(*range(number * 5000, number * 5000 + 10_000), name=f"round {number}"))
            writer.flush()

    run = platform.airflow.trigger("memwal_merge", {"table": "people"})
    worker = _first_at_work(platform)
    worker.kill()
    assert platform.wait("memwal_merge", run) == "success"

    assert worker.wait(60) == -signal.SIGKILL
    admin = Table.open(table.uri, storage_options=platform.storage)
    rows = table.dataset().to_table(columns=["id", "name"]).sort_by("id").to_pydict()
    assert rows["id"] == list(range(ROWS))
    assert rows["name"] == [f"round {min(2, number // 5000)}" for number in range(ROWS)]
    assert admin.status().merge_lag_generations == 0
    merged = next(record for record in admin.opened.ledger.runs("merge") if record.outcome.value == "done")
    assert merged.facts["where"]["engine"] == "spark"


def test_catchup_and_snapshot_follow_the_merge_before_by_themselves(platform: Platform) -> None:
    admin = Table.open(TABLE, storage_options=platform.storage)
    for dag in ("memwal_catchup", "memwal_snapshot"):
        until(lambda dag=dag: platform.airflow.runs(dag))
        assert platform.wait(dag, platform.airflow.runs(dag)[0]["dag_run_id"]) == "success"
    assert [index.lag for index in admin.run(CatchupRequest(dry_run=True)).plan.indexes] == [0]
    outcomes = {(record.key.job, record.outcome.value) for record in admin.opened.ledger.runs()}
    assert {("merge", "done"), ("catchup", "done"), ("snapshot", "done")} <= outcomes


@pytest.mark.req("T2", "T3")
def test_no_secret_is_left_on_a_cluster(platform: Platform) -> None:
    """What the merge before left anywhere: in files, events, answers and the ledger; and what its processes had."""
    written = whatever_was_written(platform.directory.root.parent)
    named = [name for name, text in written.items() if "CANARY" in text]
    store = open_store(TABLE, storage_options=platform.storage)
    recorded = [store.get(info.path) for info in store.list_objects(LEDGER_DIRECTORY)]
    run = platform.airflow.runs("memwal_merge")[0]["dag_run_id"]
    answers = ("taskInstances", "taskInstances/~/xcomEntries")
    told = [platform.airflow.ask("GET", f"dags/memwal_merge/dagRuns/{run}/{each}") for each in answers]
    executors = [both for both in platform.seen.values() if "CoarseGrainedExecutorBackend" in both[0]]
    drivers = [both for both in platform.seen.values() if "MAINTENANCE_JOB=" in both[1]]

    assert named == ["stack/spark/spark-defaults.conf"], "where the operator keeps the secret of the cluster"
    assert [name for name in written if name.startswith("events/")]
    assert recorded
    assert "CANARY" not in json.dumps(told)
    assert not [data for data in recorded if b"CANARY" in data]
    assert executors
    assert drivers
    assert not [command for command, _ in platform.seen.values() if "CANARY" in command]
    assert all(STORE_SECRET.partition("/")[0] in environment for _, environment in drivers)
    for secret in (*OF_AIRFLOW, *OF_AIRFLOW.values(), "AIRFLOW_CONN"):
        assert not [each for _, each in (*executors, *drivers) if secret in each], secret
    assert not [each for _, each in executors if STORE_SECRET.partition("/")[0] in each]


def test_stopping_leaves_no_process_although_a_task_has_a_driver_in_a_session_of_its_own(platform: Platform) -> None:
    platform.airflow.trigger("memwal_quality", {"table": "people", "stage": "after"})
    until(lambda: sum(map(_is_suspended, spark_drivers(platform.directory))) > 0)
    held = spark_drivers(platform.directory)
    # Airflow may end the held driver itself while its servers stop; nobody but us ends this process.
    mark = str(platform.directory.root.resolve())
    stray = subprocess.Popen(["sleep", "600"], env=marked(os.environ, mark), start_new_session=True)
    # The environment of a process can be read a moment after its start.
    until(lambda: stray.pid in [process.pid for process in platform.processes()])

    stopped = stop_stack(platform.directory, CLOCK)

    assert stopped is not None
    assert stopped.servers == 4
    assert stopped.others >= 1
    assert stray.wait(60) == -signal.SIGTERM
    assert held
    assert not any(map(_lives, held))
    assert platform.processes() == []
    assert stop_stack(platform.directory, CLOCK) is None

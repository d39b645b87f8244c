"""Files at which Lance ends the process: it ends one process, and later runs park the region and name the file."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import lance
import psutil
import pyarrow as pa
import pytest

import memwal_core
from memwal_core.clock import SystemClock
from memwal_core.errors import CorruptionError, UnavailableError
from memwal_core.format.footer import FILE_FOOTER_BYTES, read_file_footer
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.read.suspects import SUSPECTS_FACT
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.readability import files
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.native import decoding
from memwal_core.native.child_processes import ChildProcesses
from memwal_core.native.decoding import decode_file_in_child
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.req("T6")

_MERGE = "import sys, tests.integration.damage.test_forged_pages as attack; attack.merge(sys.argv[1])"


def forge(path: Path) -> bytes:
    """Let a data file claim more global buffers than there is memory; return what it was."""
    right = path.read_bytes()
    footer = read_file_footer(right, len(right))
    path.unlink()  # Other names of the file keep its bytes.
    path.write_bytes(right[:-FILE_FOOTER_BYTES] + footer._replace(buffers=2**32 - 1).pack())
    return right


def merge(uri: str) -> None:
    Table.open(uri).run(MergeRequest())


def later(uri: str) -> Table:
    """Open a table when the leases of the dead have ended."""
    return Table.open(uri, clock=ManualClock(SystemClock().now() + timedelta(days=1)))


def merged_elsewhere(uri: str) -> int:
    """Merge in a process of its own; return how it ended."""
    return subprocess.run([sys.executable, "-c", _MERGE, uri], capture_output=True, check=False).returncode


def test_file_that_ends_the_process_that_decodes_it_ends_another_one(tmp_path: Path) -> None:
    written = lance.write_dataset(people(*range(9)), str(tmp_path / "people.lance"))
    store = open_store(written.uri)
    [path] = (tmp_path / "people.lance" / "data").glob("*.lance")
    name = f"data/{path.name}"
    assert decode_file_in_child(store.uri_of(name), store.storage_options) == 9

    right = forge(path)
    with pytest.raises(CorruptionError) as caught:
        decode_file_in_child(store.uri_of(name), store.storage_options)

    assert "ends the process that decodes it, with SIGABRT" in str(caught.value.facts["reason"])
    path.write_bytes(right)
    assert decode_file_in_child(store.uri_of(name), store.storage_options) == 9  # by the next process


def _is_decoder(process: psutil.Process) -> bool:
    try:
        return "decoding_child" in " ".join(process.cmdline())
    except psutil.Error:  # It has ended, and nobody has taken note of that yet.
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_process_that_others_end_says_nothing_of_a_file(tmp_path: Path, how: signal.Signals) -> None:
    """It may end by itself, too, when nothing is asked of it for a while."""
    written = lance.write_dataset(people(*range(9)), str(tmp_path / "people.lance"))
    store = open_store(written.uri)
    [path] = (tmp_path / "people.lance" / "data").glob("*.lance")
    assert decode_file_in_child(store.uri_of(f"data/{path.name}"), store.storage_options) == 9

    decoders = [each for each in psutil.Process().children() if _is_decoder(each)]
    for each in decoders:
        each.send_signal(how)

    assert decoders
    assert decode_file_in_child(store.uri_of(f"data/{path.name}"), store.storage_options) == 9


def test_repair_gives_no_rows_up_because_decoders_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory was short: the entry counted as damaged, and the advice to a person was to give its rows up."""
    values = [{"id": number, "pairs": [{"left": number, "right": 0}]} for number in range(9)]
    rows = pa.Table.from_pylist(values)
    table = memwal_core.create(str(tmp_path / "pairs.lance"), rows.schema, key="id", buckets=1)
    with table.writer() as writer:
        writer.put(rows)
    killed = ChildProcesses("tests.integration.damage.killed_child")
    monkeypatch.setattr(decoding, "_processes", lambda _: killed)

    with pytest.raises(UnavailableError, match="memory was short, or somebody ended it"):
        table.run(RepairRequest())
    with pytest.raises(UnavailableError, match="memory was short, or somebody ended it"), table.writer() as writer:
        writer.put(rows)

    monkeypatch.undo()
    assert table.run(RepairRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert table.to_arrow(consistency="durable").sort_by("id").to_pylist() == values


@pytest.fixture
def forged(tmp_path: Path) -> tuple[GenerationTable, Path, bytes]:
    table = make_generation_table(str(tmp_path / "people.lance"), "ours")
    [path] = [each for each in table.files("data") if each.suffix == ".lance"]
    return table, path, forge(path)


def test_merge_after_one_that_died_parks_the_region_and_names_the_file(
    forged: tuple[GenerationTable, Path, bytes],
) -> None:
    table, path, right = forged
    uri = table.table.uri
    assert merged_elsewhere(uri) == -6

    for _ in range(2):  # The second run knows from the first.
        report = later(uri).run(MergeRequest())

        [region] = report.regions
        assert report.outcome is JobOutcome.PARTIAL
        assert region.verdict is Verdict.DAMAGED
        assert path.name in region.evidence
        assert str(table.region_id) in report.why()
        [*_, run] = Table.open(uri).opened.ledger.runs("merge")
        assert run.facts[SUSPECTS_FACT] == [table.directory().rpartition("/")[2]]
        assert region.merged_after == 1

    path.write_bytes(right)
    report = later(uri).run(MergeRequest())
    assert report.outcome is JobOutcome.DONE
    assert report.suspects == ()
    assert table.merged() == RIGHT


def test_plan_after_a_merge_that_died_names_the_file(forged: tuple[GenerationTable, Path, bytes]) -> None:
    table, path, _ = forged
    uri = table.table.uri
    key = MergeRequest().key
    with table.table.opened.leases.acquire(key, "somebody who dies"):
        table.table.opened.ledger.begin(table.table.opened.new_run(key, "somebody who dies"))

    report = later(uri).run(MergeRequest(dry_run=True))

    assert path.name in report.regions[0].evidence


def test_deep_look_of_the_doctor_names_a_file_of_the_base_table_that_ends_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(9)))
    [path] = (tmp_path / "people.lance" / "data").glob("*.lance")
    opened = Table.open(table.uri)
    assert opened.doctor(contents=True).seen.base_files.rows_read == 9

    forge(path)
    # Pages that end a process are rare; this forgery is, but its footer is noticed first.
    monkeypatch.setattr(files, "_damage_of", lambda *_: ())
    found = opened.doctor(contents=True)

    [problem] = found.seen.base_files.problems
    assert path.name in problem.path
    assert "ends the process that decodes it, with SIGABRT" in problem.cause
    assert any(path.name in str(each) for each in found.findings)

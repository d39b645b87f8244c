"""A process killed while it writes leaves whole objects or none."""

from __future__ import annotations

import itertools
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from memwal_core.storage import open_store
from testkit.processes.start import start_process
from testkit.rng import seeded_rng

SIZE = 300_000
KILLS = 20


def _write(root: str, attempt: int, connection: Connection) -> None:
    store = open_store(root)
    connection.send("ready")
    for number in itertools.count():
        data = (number % 251).to_bytes(1, "big") * SIZE
        store.put_if_absent(f"wal-{attempt}/put/{number:06d}", data)
        source = store.staging_directory("x") / f"prepared-{attempt}-{number}"
        source.write_bytes(data)
        store.put_file_if_absent(f"wal-{attempt}/file/{number:06d}", source)
        connection.send(number)


@pytest.mark.req("FMT-47")
def test_kill_at_any_moment_leaves_each_object_whole_or_absent(tmp_path: Path) -> None:
    rng = seeded_rng(2026)
    store = open_store(str(tmp_path / "table"))
    seen = 0
    for attempt in range(KILLS):
        acknowledged = _write_and_kill(store.uri, attempt, writes=rng.randrange(1, 6), spare=rng.randrange(0, 4000))
        objects = {found.path: found for found in store.list_objects(f"wal-{attempt}")}
        for number in range(acknowledged + 1):
            for kind in ("put", "file"):
                assert f"wal-{attempt}/{kind}/{number:06d}" in objects
        for path, found in objects.items():
            number = int(path.rpartition("/")[2])
            assert found.size_bytes == SIZE
            assert store.get(path) == (number % 251).to_bytes(1, "big") * SIZE
            seen += 1
    assert seen >= 2 * KILLS
    assert all(found.path.startswith("wal-") for found in store.list_objects(""))


def _write_and_kill(root: str, attempt: int, *, writes: int, spare: int) -> int:
    """Let a process write, kill it a little after some writes, and return the last number it acknowledged."""
    process, connection = start_process(_write, root, attempt)
    assert connection.recv() == "ready"
    last = -1
    for _ in range(writes):
        last = connection.recv()
    for _ in range(spare * 100):
        pass  # Lets the kill fall anywhere in the next write.
    process.kill()
    process.join()
    with suppress(EOFError, OSError):
        while connection.poll():
            last = connection.recv()
    connection.close()
    return last

"""A process killed while it writes leaves whole objects or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memwal_core.rng import seeded_rng
from memwal_core.storage import open_store

SIZE = 300_000
KILLS = 20

WRITER = """
import sys
from memwal_core.storage import open_store
root, attempt, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(root)
print("ready", flush=True)
number = 0
while True:
    data = (number % 251).to_bytes(1, "big") * size
    store.put_if_absent(f"wal-{attempt}/put/{number:06d}", data)
    source = store.staging_directory("x") / f"prepared-{attempt}-{number}"
    source.write_bytes(data)
    store.put_file_if_absent(f"wal-{attempt}/file/{number:06d}", source)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.slow
@pytest.mark.req("FMT-47")
def test_kill_at_any_moment_leaves_each_object_whole_or_absent(tmp_path: Path) -> None:
    rng = seeded_rng(2026)
    store = open_store(str(tmp_path / "table"))
    seen = 0
    for attempt in range(KILLS):
        acknowledged = _write_and_kill(store.uri, attempt, lines=rng.randrange(1, 6), spare=rng.randrange(0, 4000))
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


def _write_and_kill(root: str, attempt: int, *, lines: int, spare: int) -> int:
    """Let a child write, kill it a little after some lines, and return the last number it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, root, str(attempt), str(SIZE)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(lines):
            child.stdout.readline()
        for _ in range(spare * 100):
            pass  # Lets the kill fall anywhere in the next write.
        child.kill()
        rest = child.stdout.read().split("\n")
    complete = [line for line in rest[:-1] if line]
    return int(complete[-1]) if complete else lines - 1

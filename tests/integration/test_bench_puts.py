import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.comparisons.writing.puts import BASE_ROWS, PUTS, put_data
from bench.harness import Case


def test_put_data_is_the_same_every_time_and_no_batch_repeats_a_key():
    data, again = put_data(100, 3), put_data(100, 3)

    assert data == again
    assert data.keys == BASE_ROWS + 3 * 50
    assert [len(set(batch["id"].to_pylist())) for batch in data.batches] == [100, 100, 100]


@pytest.mark.parametrize("arm", PUTS.arms, ids=lambda arm: arm.name)
def test_each_arm_does_its_work_and_notices_when_it_was_not_done(arm, tmp_path: Path):
    case = Case("small", 3, put_data(50, 3))
    (tmp_path / "done").mkdir()
    (tmp_path / "skipped").mkdir()

    with arm.prepare(case, tmp_path / "done") as work:
        work()
    with pytest.raises(AssertionError, match="did not do its work"), arm.prepare(case, tmp_path / "skipped"):
        pass


@pytest.mark.slow
def test_command_measures_all_arms_and_writes_json(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "bench",
        "run",
        "puts",
        "--json",
        str(tmp_path / "r.json"),
        "--scratch",
        str(tmp_path),
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=os.environ | {"COLUMNS": "120"}, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "time / pylance" in done.stdout
    written = json.loads((tmp_path / "r.json").read_text())
    cases = written["comparisons"][0]["cases"]
    assert [case["name"] for case in cases] == ["1 row", "100 rows", "1,000 rows", "10,000 rows"]
    assert all(second > 0 for case in cases for arm in case["arms"] for second in arm["seconds"])

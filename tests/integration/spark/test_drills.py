"""Runbooks whose commands run Spark are followed, like the others in ``tests/integration/runbooks``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people
from tests.integration.runbooks import drills_of_damage
from tests.integration.runbooks.scene import DRILLS, Drill, follow_runbook

assert drills_of_damage.__doc__, "its drills are in DRILLS once it is imported"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("each", [each for each in DRILLS if each.spark], ids=str)
def test_runbook_leads_from_its_situation_to_a_sound_table(each: Drill, tmp_path: Path, spark: SparkSession) -> None:
    assert spark.version
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1, 3], [4], name="new", owned=True)
    follow_runbook(each, made.uri)

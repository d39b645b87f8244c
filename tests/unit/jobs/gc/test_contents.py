"""Sorting the objects of a region directory by their names."""

from __future__ import annotations

import pytest

from memwal_core.format.paths import manifest_path, region_directory, wal_entry_path
from memwal_core.jobs.gc.contents import region_contents
from testkit.tables.garbage import REGION, stored

HOME = region_directory(REGION)
BITS = "1" + "0" * 63


def sort(*paths: str, recorded: tuple[str, ...] = ()):
    return region_contents(REGION, [stored(path) for path in paths], recorded)


def test_objects_are_sorted_by_name():
    found = sort(
        manifest_path(REGION, 2),
        manifest_path(REGION, 1),
        f"{HOME}/manifest/version_hint.json",
        wal_entry_path(REGION, 3, ".arrow"),
        f"{HOME}/0badf00d_gen_4/data/a.lance",
        f"{HOME}/0badf00d_gen_4/_versions/1.manifest",
        f"{HOME}/wal/{BITS}.arrow.tmp.1f3e",
    )

    assert [each.number for each in found.versions] == [1, 2]
    assert [each.number for each in found.wal] == [3]
    assert found.wal_suffixes == {".arrow"}
    (only,) = found.directories.values()
    assert (only.name, only.generation, only.objects, only.size_bytes) == ("0badf00d_gen_4", 4, 2, 20)
    assert len(found.temporaries) == 1
    assert found.unknown == []


@pytest.mark.req("GC-27")
@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "wal/readme.md",
        f"wal/{BITS}.parquet",
        f"wal/sub/{BITS}.lance",
        f"manifest/{BITS}.lance",
        "manifest/0.binpb",
        "x_gen_0/data",
        "gen_1/data",
        "x_gen_1",
        "wal/something.tmp.12",
    ],
)
def test_object_of_no_known_form_is_unknown(name):
    found = sort(f"{HOME}/{name}")

    assert [info.path for info in found.unknown] == [f"{HOME}/{name}"]
    assert not found.directories


def test_recorded_directory_of_another_form_is_seen():
    found = sort(f"{HOME}/odd/data", recorded=("odd",))

    assert found.directories["odd"].generation == 0

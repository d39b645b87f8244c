"""The check of `make lowest`: which lower bounds a resolution of the lowest versions does not reach."""

from __future__ import annotations

from packaging.version import Version

from tools.check_lowest import bounds, unreached

PROJECT = {
    "dependencies": ["numpy>=2", "pylance>=14.0.2,<14.1"],
    "optional-dependencies": {"cli": ["typer>=0.16"], "spark": ["pyspark==4.2.0"], "all": ["memwal-core[cli,spark]"]},
}


def test_bounds_are_those_of_the_core_and_the_chosen_extras() -> None:
    core = {"numpy": Version("2"), "pylance": Version("14.0.2")}

    assert bounds(PROJECT, []) == core
    assert bounds(PROJECT, ["cli"]) == core | {"typer": Version("0.16")}
    assert bounds(PROJECT, None) == core | {"typer": Version("0.16"), "pyspark": Version("4.2.0")}


def test_bound_that_is_higher_in_the_resolution_or_missing_there_is_named() -> None:
    wanted = {"numpy": Version("2"), "typer": Version("0.16"), "rich": Version("14")}

    assert unreached(wanted, "numpy==2.0.0\nrich==14.0.0\ntyper==0.16.0 ; python_version > '3'\n") == []
    assert unreached(wanted, "numpy==2.0.0\ntyper==0.26.1\n") == [
        "rich: pyproject.toml allows 14, and no version is the lowest that fits",
        "typer: pyproject.toml allows 0.16, and 0.26.1 is the lowest that fits",
    ]

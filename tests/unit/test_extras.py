"""Whoever installed less than a command needs is told what to install."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.extras import EXTRA_OF, extras_named

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("module", "extra"), [("pyspark.sql", "spark"), ("typer", "cli"), ("boto3", "s3")])
def test_a_missing_package_names_its_extra(module: str, extra: str) -> None:
    with pytest.raises(InvalidRequestError) as caught, extras_named():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert f'pip install "memwal-core[{extra}]"' in str(caught.value)


def test_other_missing_modules_are_bugs() -> None:
    with pytest.raises(ModuleNotFoundError), extras_named():
        raise ModuleNotFoundError("No module named 'memwal_core.misspelt'", name="memwal_core.misspelt")


def test_every_extra_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(EXTRA_OF.values()) <= project["optional-dependencies"].keys()

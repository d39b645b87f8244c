"""Jobs as Spark applications, run in this process."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

_JOBS = Path(__file__).resolve().parents[3] / "jobs"


def submit(job: str, **document: object) -> int:
    """Run ``jobs/JOB.py`` with a document, and return its exit code."""
    script = str(_JOBS / f"{job}.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, json.dumps(document)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code

"""What Airflow, from 3.2 on, makes of the connection type: a form with fields of its own."""

from __future__ import annotations

import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

pytestmark = pytest.mark.airflow


def test_airflow_knows_the_type_and_its_form() -> None:
    hook = ProvidersManagerTaskRuntime().hooks["lance"]
    assert hook is not None
    assert hook.hook_class_name == "memwal_core.airflow.hook.LanceHook"
    assert hook.connection_testable
    known = ProvidersManager()
    behaviour = known.field_behaviours["lance"]
    assert behaviour["hidden_fields"] == ["port", "schema"]
    assert behaviour["relabeling"]["host"] == "Address"
    fields = {
        name.removeprefix("extra__lance__"): widget.is_sensitive
        for name, widget in known.connection_form_widgets.items()
        if name.startswith("extra__lance__")
    }
    assert fields == {
        "aws_endpoint": False,
        "aws_region": False,
        "aws_session_token": True,
        "allow_http": False,
    }

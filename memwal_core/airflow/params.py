"""The fields of a job's trigger form, made from its request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.request import JobRequest


def params_of(request_type: type[JobRequest]) -> dict[str, Param]:
    """Return the fields of a job's form: the table, and those of its request."""
    schema = request_type.model_json_schema()
    required = set(schema.get("required", ()))
    own = {
        name: _param(_resolved(field, schema), is_required=name in required)
        for name, field in schema["properties"].items()
    }
    optional = bool(request_type.info.started_by)
    return {"table": table_param(optional=optional), **own}


def table_param(*, optional: bool) -> Param:
    """Return the field that names the table."""
    description = "Name of a registered table or, where that is allowed, its path or address."
    if optional:
        description += " Empty: the tables whose change started the run."
        return Param(None, type=["null", "string"], minLength=1, title="Table", description=description)
    return Param(type="string", minLength=1, title="Table", description=description)


_LINEAGE = "openlineage"
"""Where Airflow notes in a run's configuration which task triggered it."""


def refuse_ignored(context: Mapping[str, Any]) -> None:
    """Refuse a run of which Airflow hears only a part: a misspelt ``dry_run`` would delete, and ``table`` mean all.

    Raises:
        InvalidRequestError: The run is configured with names that the form lacks, or Airflow does not let
            configurations of runs overrule the defaults of the form.
    """
    asked, known = dict(context["dag_run"].conf or {}), context["dag"].params
    asked.pop(_LINEAGE, None)
    if unknown := sorted(set(asked) - set(known)):
        raise InvalidRequestError(
            "the configuration of this run has names that the form of its DAG lacks",
            remedy="correct them and trigger the run again",
            unknown=unknown,
            known=sorted(known),
        )
    if ignored := sorted(name for name, value in asked.items() if context["params"].get(name) != value):
        raise InvalidRequestError(
            "Airflow ignores the configuration of this run",
            remedy="set core.dag_run_conf_overrides_params to True in Airflow's configuration",
            ignored=ignored,
        )


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a property as Airflow's form knows it: references in place, ``null`` among the types instead of anyOf."""
    choices = [field, *field.get("anyOf", ())]
    found: dict[str, Any] = {}
    for choice in choices:
        if choice.get("type") != "null":
            found |= {**_referenced(choice, schema), **choice}
    # What the field itself says wins over what its type says: title, description, bounds of the form.
    found = {name: value for name, value in {**found, **field}.items() if name not in ("anyOf", "$ref")}
    if any(choice.get("type") == "null" for choice in choices):
        found["type"] = ["null", found["type"]]
        if "enum" in found:
            found["enum"] = [None, *found["enum"]]
    return found


def _referenced(choice: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    name = choice.get("$ref", "").rpartition("/")[2]
    return dict(schema["$defs"][name]) if name else {}


def _param(field: dict[str, Any], *, is_required: bool) -> Param:
    default = field.pop("default", None)
    if is_required:
        return Param(**field)
    if default is None and field.get("type") == "object":
        default = {}
    if default == "" and field.get("type") == "string":
        # An empty field of the form arrives as nothing.
        field["type"], default = ["null", "string"], None
    return Param(default, **field)

"""Fields of the trigger form that several DAGs have."""

from __future__ import annotations

from airflow.sdk import Param

REGION_ID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def table_param(*, optional: bool) -> Param:
    """Return the field that names the table."""
    description = "Name of a registered table or, where that is allowed, its path or address."
    if optional:
        description += " Empty: the tables whose change started the run."
        return Param(None, type=["null", "string"], minLength=1, title="Table", description=description)
    return Param(type="string", minLength=1, title="Table", description=description)


def dry_run_param(*, default: bool = False) -> Param:
    """Return the switch between planning and acting."""
    return Param(
        default,
        type="boolean",
        title="Dry run",
        description="Only plan: the log of the task plan says what would be done, and nothing is changed.",
    )


def regions_param() -> Param:
    """Return the field that bounds a run to regions."""
    return Param(
        [],
        type="array",
        items={"type": "string", "pattern": REGION_ID},
        uniqueItems=True,
        title="Regions",
        description="Region ids, one per line. Empty: all regions.",
        section="Bounds",
    )


STORAGE_PARAMS = {
    "storage_connection": Param(
        None,
        type=["null", "string"],
        title="Storage connection",
        description="Airflow connection of type lance with address and credentials of the object store. Empty: the "
        "one of the registered table, or the environment of the workers.",
        section="Storage",
    ),
    "storage_options": Param(
        {},
        type="object",
        additionalProperties={"type": "string"},
        title="Storage options",
        description="Further options of the object store, for example an endpoint. Visible to everyone: no secrets.",
        section="Storage",
    ),
}

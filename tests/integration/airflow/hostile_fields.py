"""Run in a process of its own: renders the fields of all tasks with values that look like templates.

Prints, for each task, its fields before and after as JSON: before, references to results of other tasks are
replaced by these results and nothing else is done.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.models import DagBag
from airflow.sdk import BaseOperator
from airflow.sdk.definitions.param import process_params

SECRET = "the-password-of-a-connection"
HOSTILE = "{{ conn.x.password }}"
BLOCK = "{% set a = 1 %}{{ conn.x.password }}{# gone #}.sql"
PARAMS = {
    "table": HOSTILE,
    "tables": [HOSTILE],
    "sources": [BLOCK],
    "batch": BLOCK,
    "stream": HOSTILE,
    "order_by": HOSTILE,
    "delete_column": BLOCK,
    "indexes": [HOSTILE],
    "docs": BLOCK,
    "options": {HOSTILE: BLOCK},
}
ITEM = {
    "label": BLOCK,
    "table": HOSTILE,
    "job": "merge",
    "request": {"indexes": [HOSTILE], "options": {HOSTILE: BLOCK}, "batch": BLOCK},
    "promise": {"through": {HOSTILE: BLOCK}},
    "ticket": HOSTILE,
}
TABLE = {"label": BLOCK, "table": HOSTILE, "ignore_pauses": False}
RESULTS = {"plan": [ITEM], "hold": [ITEM], "tables": [TABLE]}
"""What tasks return to those that come after them; all others return ``OTHER``."""
OTHER = {"table": HOSTILE, HOSTILE: BLOCK}


class Templated(BaseOperator):
    """Renders its field as Airflow does by default: the control."""

    template_fields = ("item",)

    def __init__(self, *, item: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.item = item


class Instance:
    """A task instance whose predecessors have returned values that look like templates."""

    map_index = 0
    task: Any = None

    def __init__(self) -> None:
        self._upstream_map_indexes: dict[str, Any] = {}

    def xcom_pull(self, *, task_ids: str, **_: object) -> Any:
        return RESULTS.get(task_ids, OTHER)


def context_of(task: Any, dag: Any) -> dict[str, Any]:
    asked = {name: value for name, value in PARAMS.items() if name in dag.params}
    return {
        "dag": dag,
        "dag_run": SimpleNamespace(conf=asked),
        "ti": Instance(),
        "task": task,
        "params": process_params(dag, task, asked, suppress_exception=False),
        "conn": {"x": {"password": SECRET}},
        "label": TABLE["label"],
    }


def resolved(value: Any, context: dict[str, Any]) -> Any:
    if resolve := getattr(value, "resolve", None):
        return resolve(context)
    if isinstance(value, dict):
        return {name: resolved(each, context) for name, each in value.items()}
    return [resolved(each, context) for each in value] if isinstance(value, list | tuple) else value


def as_json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, default=lambda value: type(value).__name__)


def rendered(task: Any, dag: Any) -> dict[str, Any]:
    context = context_of(task, dag)
    if task.is_mapped:
        arguments, _ = task._get_specified_expand_input().resolve(context)
        before = {name: arguments.get(name) for name in task.template_fields}
    else:
        before = {name: resolved(getattr(task, name, None), context) for name in task.template_fields}
    task.render_template_fields(context)
    after = {name: getattr(context["task"], name, None) for name in context["task"].template_fields}
    template = task.map_index_template
    label = dag.get_template_env().from_string(template).render(context) if template else None
    return {"before": as_json(before), "after": as_json(after), "label": label}


def texts_of(value: Any) -> list[str]:
    """Return the texts in a value that was written in a DAG file, those of parameters and results left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.items() for text in texts_of(each)]
    return [text for each in value for text in texts_of(each)] if isinstance(value, list | tuple | set) else []


def written(task: Any) -> dict[str, Any]:
    """Return what a DAG file says of a task, where a template would be rendered, called or shown."""
    own = {**vars(task), **(getattr(task, "partial_kwargs", None) or {})}
    templates = {name: texts_of(value) for name, value in own.items() if not name.startswith("_")}
    return {
        "operator": task.task_type,
        "templates": {name: texts for name, texts in templates.items() if any("{{" in text for text in texts)},
        "callbacks": sorted(
            {
                each.__name__
                for name, value in own.items()
                if name.startswith("on_") and value
                for each in (value if isinstance(value, list | tuple) else [value])
            }
        ),
        "told": [own.get("email"), own.get("notifiers")],
        "links": [type(link).__name__ for link in getattr(task, "operator_extra_links", ())],
        "pool": own.get("pool"),
        "display": own.get("_task_display_property_value") or own.get("_task_display_name"),
    }


def free_texts(dag: Any) -> list[str]:
    """Return the fields of a form that take any text, alone, in a list or in an object."""
    found = []
    for name in dag.params:
        schema = dag.params.get_param(name).schema
        kinds = [schema.get("type")] if isinstance(schema.get("type"), str) else list(schema.get("type") or ())
        inner = schema.get("items") or schema.get("additionalProperties") or {}
        free = "string" in kinds and not schema.get("enum") and not schema.get("pattern")
        free |= inner.get("type") == "string" and not inner.get("pattern")
        found += [name] if free else []
    return found


def form(dag: Any) -> dict[str, Any]:
    return {
        "free": free_texts(dag),
        "macros": sorted(dag.user_defined_macros or {}),
        "native": dag.render_template_as_native_obj,
        "search": dag.template_searchpath,
        "templates": [text for text in (dag.doc_md, dag.description, dag.dag_display_name) if "{{" in (text or "")],
        "callbacks": [each.__name__ for each in (dag.on_failure_callback, dag.on_success_callback) if each],
        "links": sorted(dag.owner_links or {}),
    }


bag = DagBag(Path(sys.argv[1]))
merge = bag.dags["memwal_merge"]
control = Templated(task_id="control", item=ITEM, dag=merge)
facts = {
    "secret": SECRET,
    "hostile": [HOSTILE, BLOCK],
    "import_errors": bag.import_errors,
    "given": sorted(PARAMS),
    "forms": {dag.dag_id: form(dag) for dag in bag.dags.values()},
    "written": {
        f"{dag.dag_id}.{task.task_id}": written(task)
        for dag in bag.dags.values()
        for task in dag.tasks
        if task is not control
    },
    "control": rendered(control, merge),
    "tasks": {
        f"{dag.dag_id}.{task.task_id}": rendered(task, dag)
        for dag in bag.dags.values()
        for task in dag.tasks
        if task is not control
    },
}
print("FACTS " + json.dumps(facts))

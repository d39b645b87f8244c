"""Operators whose fields a form can fill, but never with a template."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from memwal_core.airflow.links import RunbookLink, TablePageLink


class Untemplated(BaseOperator):
    """Takes results of other tasks as they are: text that looks like a template stays text.

    Airflow resolves results only in fields that it also renders; here resolving is all that rendering does.
    """

    operator_extra_links = (TablePageLink(), RunbookLink())

    def render_template(
        self,
        content: Any,  # noqa: ANN401 - Airflow's signature
        context: Any,  # noqa: ANN401
        jinja_env: Any = None,  # noqa: ANN401, ARG002
        seen_oids: set[int] | None = None,  # noqa: ARG002
    ) -> Any:  # noqa: ANN401
        """Return the result that a field stands for, or the field as it is."""
        resolve = getattr(content, "resolve", None)
        return resolve(context) if callable(resolve) else content

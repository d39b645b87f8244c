"""Mounts the status page in Airflow: a page in the navigation, for users who may see DAG runs."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class WhenAsked:
    """The page, loaded at its first request: most of Airflow's processes never show it."""

    def __init__(self) -> None:
        """Load nothing."""
        self._app: ASGIApp | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._loading:
            if self._app is None:
                # In a thread: it takes seconds, in which the server goes on answering users and tasks.
                self._app = await asyncio.to_thread(make_app)
        await self._app(scope, receive, send)


def make_app() -> ASGIApp:
    """Build the page behind Airflow's own permissions, which plugins have to ask for."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends

    from memwal_core.airflow.tasks.source import RegistryTables
    from memwal_core.settings import load_settings
    from memwal_core.web import create_app

    permission = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
    return create_app(RegistryTables(), [permission], load_settings().page)


class MemwalPage(AirflowPlugin):
    """The status page."""

    name = "memwal_page"
    fastapi_apps = [{"app": WhenAsked(), "url_prefix": "/memwal", "name": "MemWAL maintenance"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "MemWAL",
            # Without a slash in front: the browser resolves it from where Airflow is served, which may be below a path.
            "href": "memwal/",
            "destination": "nav",
            "url_route": "memwal",
            "nav_top_level": True,
        }
    ]


installed = None if "memwal_page" in sys.modules else MemwalPage
"""For the entry point ``airflow.plugins``. Airflow loads its plugin folder first, and calls a second page an error."""

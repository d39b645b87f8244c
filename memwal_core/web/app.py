"""The web application: pages of HTML, rendered here, with nothing but relative addresses."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.base import RequestResponseEndpoint

from memwal_core.errors import InternalError, MemwalError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.native.panics import panics_raised
from memwal_core.registry import RegisteredTable
from memwal_core.web.checks import words
from memwal_core.web.reading import TablePage, read_table, unreadable
from memwal_core.web.source import PageSource

_log = logging.getLogger(__name__)

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

RUNNABLE = MappingProxyType(
    {
        "memwal_flush": "Flush idle regions",
        "memwal_merge": "Merge",
        "memwal_catchup": "Catch up indexes",
        "memwal_snapshot": "Publish snapshot",
        "memwal_compact": "Compact",
        "memwal_gc": "Collect garbage",
        "memwal_verify": "Verify keys",
        "memwal_quality": "Check data",
        "memwal_maintain": "Whole cycle",
    }
)
"""DAG -> what its button says. Its form is built from the parameters of the DAG."""

_SHOWN_FACTS = (
    "generations",
    "rows",
    "regions",
    "fragments_before",
    "fragments_after",
    "failures",
    "checks",
    "quarantined",
    "version",
)
"""Of a run's facts those that tell people what it did."""

TAKES_REGIONS = frozenset({"memwal_flush", "memwal_merge", "memwal_gc"})
_TAKES_TABLES = frozenset({"memwal_maintain"})


def create_app(source: PageSource, dependencies: Sequence[Depends] = ()) -> FastAPI:
    """Build the page.

    Args:
        source: The tables; only read.
        dependencies: What every request must satisfy, for example to come from a user with permission. Styles and
            the script are no secret and are served to everybody.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title="MemWAL maintenance")
    show = _Pages(source)
    for path, handler in (
        ("/", show.overview),
        ("/table", show.table),
        ("/region", show.region),
        ("/run", show.run),
    ):
        app.add_api_route(
            path, handler, methods=["GET", "HEAD"], response_class=HTMLResponse, dependencies=list(dependencies)
        )
    app.mount("/static", StaticFiles(directory=_HERE / "static"))
    _explain_errors(app, show)
    return app


def _explain_errors(app: FastAPI, show: _Pages) -> None:
    @app.middleware("http")
    async def protect(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        answer.headers.update(_HEADERS)
        return answer

    @app.exception_handler(MemwalError)
    def failed(_request: Request, error: MemwalError) -> Response:
        return show.page("error.html", status_code=503, message=str(error))

    @app.exception_handler(StarletteHTTPException)
    def refused(_request: Request, error: StarletteHTTPException) -> Response:
        return show.page("error.html", status_code=error.status_code, message=str(error.detail))

    @app.exception_handler(RequestValidationError)
    def incomplete(_request: Request, _error: RequestValidationError) -> Response:
        return show.page("error.html", status_code=404, message="the address of this page is not complete")

    @app.exception_handler(Exception)
    def broken(_request: Request, error: Exception) -> Response:
        # What it says may quote a secret; Airflow's log has it.
        answer = show.page("error.html", status_code=500, message=f"{type(error).__name__}; the log says more")
        answer.headers.update(_HEADERS)
        return answer


class _Pages:
    """Handlers. They are plain functions, which the server runs in threads, because reading waits for the store."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._templates = Environment(
            loader=PackageLoader("memwal_core.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters.update(query=urlencode, size=_size, age=_age, words=words, facts=_facts)
        self._templates.globals.update(runnable=RUNNABLE, takes_regions=TAKES_REGIONS)

    def page(self, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, status_code=status_code)

    def overview(self) -> HTMLResponse:
        registry = self._source.registry()
        tables = registry.maintained if registry is not None else ()
        views = [self._row(table) for table in tables]
        views.sort(key=lambda view: (view.score, view.table.name))
        return self.page("overview.html", views=views, registry=registry)

    def table(self, name: Annotated[str, Query()]) -> HTMLResponse:
        return self.page("table.html", view=self._view(self._entry(name), with_garbage=True))

    def region(self, table: Annotated[str, Query()], region: Annotated[str, Query()]) -> HTMLResponse:
        entry, region_id = self._entry(table), _region(region)
        view = self._view(entry, with_garbage=False)
        shown = next((each for each in view.regions if each.standing.region_id == region_id), None)
        if shown is None and not view.error:
            raise HTTPException(404, "there is no such region")
        answer = self._source.open(entry).why(region_id)
        return self.page("region.html", table=entry, answer=answer, region=shown)

    def run(
        self, dag: Annotated[str, Query()], table: Annotated[str, Query()], region: Annotated[str, Query()] = ""
    ) -> HTMLResponse:
        if dag not in RUNNABLE:
            raise HTTPException(404, "there is no such job")
        entry = self._entry(table)
        filled: dict[str, object] = {"tables": [entry.name]} if dag in _TAKES_TABLES else {"table": entry.name}
        if region and dag in TAKES_REGIONS:
            filled["regions"] = [str(_region(region))]
        return self.page("run.html", dag=dag, title=RUNNABLE[dag], table=entry, filled=json.dumps(filled))

    def _entry(self, name: str) -> RegisteredTable:
        registry = self._source.registry()
        for table in registry.maintained if registry is not None else ():
            if table.name == name:
                return table
        raise HTTPException(404, "there is no such table")

    def _row(self, table: RegisteredTable) -> TablePage:
        """Read a table among others, which what nobody foresaw of this one must not hide."""
        try:
            return self._view(table, with_garbage=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are shown
            _log.exception("the page cannot show a table [table=%s]", table.name)
            kind = type(error).__name__
            return unreadable(table, InternalError("the table cannot be shown", remedy="read the log", error=kind))

    def _view(self, table: RegisteredTable, *, with_garbage: bool) -> TablePage:
        try:
            with panics_raised():
                return read_table(self._source.open(table), table, with_garbage=with_garbage)
        except MemwalError as error:
            return unreadable(table, error)


def _region(text: str) -> RegionId:
    try:
        return parse_region_id(text)
    except MemwalError:
        raise HTTPException(404, "there is no such region") from None


def _size(size_bytes: int) -> str:
    amount, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def _facts(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {facts[name]}" for name in _SHOWN_FACTS if isinstance(facts.get(name), int))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    for length, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {name}"
    return f"{seconds:.0f} s"

"""The web application: pages of HTML, rendered here, with nothing but relative addresses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
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
from markupsafe import Markup
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.base import RequestResponseEndpoint

from memwal_core.clock import SystemClock
from memwal_core.errors import MemwalError
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.native.panics import panics_raised
from memwal_core.observe.health import Health
from memwal_core.registry import RegisteredTable
from memwal_core.settings import PageSettings
from memwal_core.text import show_count
from memwal_core.web import show
from memwal_core.web.advice import Advice, FleetState, NextStep, runbook_name
from memwal_core.web.board import Board
from memwal_core.web.fleet import advise_sight, count_states, list_fleet
from memwal_core.web.reading import read_summary, read_table
from memwal_core.web.runbook import render_runbook
from memwal_core.web.sentences import sentence_of
from memwal_core.web.show import as_sentence
from memwal_core.web.source import PageSource

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

TAKES_REGIONS = frozenset({"memwal_flush", "memwal_merge", "memwal_gc"})
_TAKES_TABLES = frozenset({"memwal_maintain"})


_REMEMBERED = 20
"""Tables whose whole page is remembered, for when they do not answer."""

_AGAIN = 10
"""So many times as often are tables looked at in depth in which that found something urgent."""

_MAY_BE_SET = frozenset({"remove_versions"})
"""Options that an address may switch on in a form, where people see it before they trigger."""


def create_app(
    source: PageSource,
    dependencies: Sequence[Depends] = (),
    settings: PageSettings | None = None,
) -> FastAPI:
    """Build the page.

    Args:
        source: The tables; only read.
        dependencies: What every request must satisfy, for example to come from a user with permission. Styles and
            the script are no secret and are served to everybody.
        settings: How tables are read; the defaults if None.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title="MemWAL maintenance")
    pages = _Pages(source, settings or PageSettings())
    for path, handler in (
        ("/", pages.overview),
        ("/table", pages.table),
        ("/region", pages.region),
        ("/run", pages.run),
        ("/runbook", pages.runbook),
    ):
        app.add_api_route(
            path, handler, methods=["GET", "HEAD"], response_class=HTMLResponse, dependencies=list(dependencies)
        )
    app.mount("/static", StaticFiles(directory=_HERE / "static"))
    _explain_errors(app, pages)
    return app


def _explain_errors(app: FastAPI, pages: _Pages) -> None:
    @app.middleware("http")
    async def protect(request: Request, call_next: RequestResponseEndpoint) -> Response:
        answer = await call_next(request)
        answer.headers.update(_HEADERS)
        return answer

    @app.exception_handler(MemwalError)
    def failed(_request: Request, error: MemwalError) -> Response:
        return pages.page("error.html", status_code=503, message=as_sentence(error.what), error=error)

    @app.exception_handler(StarletteHTTPException)
    def refused(_request: Request, error: StarletteHTTPException) -> Response:
        return pages.page("error.html", status_code=error.status_code, message=str(error.detail), error=None)

    @app.exception_handler(RequestValidationError)
    def incomplete(_request: Request, _error: RequestValidationError) -> Response:
        message = "the address of this page is not complete"
        return pages.page("error.html", status_code=404, message=message, error=None)

    @app.exception_handler(Exception)
    def broken(_request: Request, error: Exception) -> Response:
        # What it says may quote a secret; Airflow's log has it.
        message = f"{type(error).__name__}; the log says more"
        answer = pages.page("error.html", status_code=500, message=message, error=None)
        answer.headers.update(_HEADERS)
        return answer


class _Pages:
    """Handlers. They are plain functions, which the server runs in threads, because reading waits for the store."""

    def __init__(self, source: PageSource, settings: PageSettings) -> None:
        self._source = source
        self._fresh_s = settings.fresh_s
        clock = SystemClock()
        self._deep = deep = DeepLooks(self._look_deep, clock, settings.deep_s, settings.deep_s / _AGAIN)
        self._fleet = Board(lambda each: read_summary(source.open(each), deep.of(each.uri)), settings, clock)
        self._tables = Board(
            lambda each: read_table(source.open(each), deep.of(each.uri)), settings, clock, _REMEMBERED
        )
        self._templates = Environment(
            loader=PackageLoader("memwal_core.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters.update(
            query=urlencode, size=show.size, age=show.age, words=show.words, sentence=as_sentence,
            short=show.short_ids, count=show_count, runbook=runbook_name, marked=show.marked,
            quoted=shlex.quote, told=sentence_of,
        )  # fmt: skip
        self._templates.globals.update(
            runnable=RUNNABLE, takes_regions=TAKES_REGIONS, states=tuple(FleetState), form=_form_query
        )

    def page(self, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
        text = self._templates.get_template(template).render(values)
        return HTMLResponse(text, status_code=status_code)

    def overview(self, state: Annotated[str, Query()] = "") -> HTMLResponse:
        registry = self._source.registry()
        tables = registry.maintained if registry is not None else ()
        self._deep.begin(tables)
        sights = self._fleet.look(tables)
        rows = list_fleet(sights, registry.broken if registry is not None else ())
        counts = count_states(rows)
        shown = [row for row in rows if not state or row.advice.state == state]
        awaited = sum(row.is_awaited for row in rows)
        values: dict[str, Any] = {"registry": registry, "total": len(rows), "counts": counts, "awaited": awaited}
        return self.page("overview.html", rows=shown, state=state, fresh_s=max(1.0, self._fresh_s), **values)

    def table(self, name: Annotated[str, Query()]) -> HTMLResponse:
        entry = self._entry(name)
        self._deep.begin([entry])
        sight = self._tables.see(entry)
        view = sight.view
        advice = advise_sight(sight.reduced(lambda page: page.summary))
        book = self._runbook(advice, entry)
        return self.page("table.html", table=entry, sight=sight, view=view, advice=advice, book=book)

    def region(self, table: Annotated[str, Query()], region: Annotated[str, Query()]) -> HTMLResponse:
        entry, region_id = self._entry(table), _region(region)
        sight = self._tables.see(entry)
        regions = sight.view.regions if sight.view is not None else ()
        shown = next((each for each in regions if each.standing.region_id == region_id), None)
        is_readable = sight.view is not None and sight.view.error is None
        if shown is None and is_readable:
            raise HTTPException(404, "there is no such region")
        if shown is None and sight.error is not None:
            raise sight.error
        answer = None
        if sight.error is None:  # A store that does not answer is not asked once more.
            with panics_raised():
                answer = self._source.open(entry).why(region_id)
        return self.page("region.html", table=entry, region_id=region_id, sight=sight, answer=answer, region=shown)

    def run(
        self,
        dag: Annotated[str, Query()],
        table: Annotated[str, Query()],
        region: Annotated[str, Query()] = "",
        on: Annotated[str, Query()] = "",
    ) -> HTMLResponse:
        if dag not in RUNNABLE or (on and on not in _MAY_BE_SET):
            raise HTTPException(404, "there is no such job")
        entry = self._entry(table)
        filled: dict[str, object] = {"tables": [entry.name]} if dag in _TAKES_TABLES else {"table": entry.name}
        if region and dag in TAKES_REGIONS:
            filled["regions"] = [str(_region(region))]
        if on:
            filled[on] = True
        return self.page("run.html", dag=dag, title=RUNNABLE[dag], table=entry, filled=json.dumps(filled))

    def runbook(self, name: Annotated[str, Query()], table: Annotated[str, Query()]) -> HTMLResponse:
        entry = self._entry(table)
        book = render_runbook(name, entry.name, entry.uri)
        if book is None:
            raise HTTPException(404, "there is no such runbook")
        return self.page("runbook.html", name=name, table=entry, book=book)

    def _look_deep(self, table: RegisteredTable) -> Health:
        with panics_raised():
            return self._source.open(table).doctor()

    def _runbook(self, advice: Advice, entry: RegisteredTable) -> Markup | None:
        finding = advice.finding
        region = str(finding.region_id) if finding is not None and finding.region_id is not None else ""
        return render_runbook(advice.runbook, entry.name, entry.uri, region) if advice.runbook else None

    def _entry(self, name: str) -> RegisteredTable:
        registry = self._source.registry()
        for table in registry.maintained if registry is not None else ():
            if table.name == name:
                return table
        raise HTTPException(404, "there is no such table")


def _region(text: str) -> RegionId:
    try:
        return parse_region_id(text)
    except MemwalError:
        raise HTTPException(404, "there is no such region") from None


def _form_query(table: str, action: NextStep) -> str:
    """Return the query of the form that an action opens."""
    region = next(iter(action.regions), "")
    on = next((name for name, value in action.filled.items() if value is True), "")
    return urlencode({"dag": action.dag, "table": table, "region": region, **({"on": on} if on else {})})

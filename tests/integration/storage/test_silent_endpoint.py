"""An endpoint that accepts connections and never answers is one error, in the time that a setting states."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import TableReader
from memwal_core.cli.app import app
from memwal_core.errors import UnavailableError
from memwal_core.flushed.read import open_generation
from memwal_core.ids import IdSource
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import PageSettings, Settings, StorageSettings
from memwal_core.storage import ObjectStore, open_store
from memwal_core.table import Table
from memwal_core.web import create_app

pytestmark = pytest.mark.req("T6")

URI = "s3://bucket/people"
STORAGE = StorageSettings(read_timeout_s=0.6, retry_wait_s=0)
_PATIENCE_S = 120
"""Far above what a busy machine needs; without limits, Lance waits for minutes."""


class Silent:
    """Listens, and counts who came; reads and writes nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_endpoint": f"http://127.0.0.1:{self._listener.getsockname()[1]}",
            "allow_http": "true",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
        }

    @property
    def visitors(self) -> int:
        return len(self._open)

    def _accept(self) -> None:
        while True:
            try:
                self._open.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for each in self._open:
            each.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    listener = Silent()
    yield listener
    listener.close()


def _in_time(act: Callable[[], object]) -> object:
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(act).result(timeout=_PATIENCE_S)
    finally:
        pool.shutdown(wait=False)


READS: list[Callable[[ObjectStore], object]] = [
    lambda store: store.get("object"),
    lambda store: store.get_range("object", 0, 1),
    lambda store: store.head("object"),
    lambda store: list(store.list_objects("directory")),
    lambda store: store.list_directories("directory"),
]


@pytest.mark.parametrize("read", READS, ids=["get", "get_range", "head", "list_objects", "list_directories"])
def test_a_read_of_a_silent_store_is_not_repeated_past_its_time(
    silent: Silent, read: Callable[[ObjectStore], object]
) -> None:
    store = open_store(URI, storage_options=silent.options, settings=STORAGE)

    with pytest.raises(UnavailableError, match="did not answer"):
        _in_time(lambda: read(store))

    assert silent.visitors == 1  # Its one request took two thirds of the time, and no other could end in the rest.


def test_the_library_says_so(silent: Silent) -> None:
    settings = Settings(storage=STORAGE)

    with pytest.raises(UnavailableError, match="did not answer"):
        _in_time(lambda: Table.open(URI, storage_options=silent.options, settings=settings))

    assert silent.visitors == 1


_OPENED: list[Callable[[ObjectStore], object]] = [
    lambda store: TableReader(store, settings=Settings(storage=STORAGE)).dataset(),
    lambda store: open_generation(f"{URI}/_mem_wal/{IdSource().region_id()}/x_gen_1", store.storage_options),
]


@pytest.mark.parametrize("act", _OPENED, ids=["base table", "flushed MemTable"])
def test_a_store_that_falls_silent_before_lance_lists_is_waited_for_once(
    silent: Silent, act: Callable[[ObjectStore], object]
) -> None:
    """Lance repeats its listing six times, each time with three requests, whatever it is told."""
    store = open_store(URI, storage_options=silent.options, settings=STORAGE)

    with pytest.raises(UnavailableError, match="did not answer"):
        _in_time(lambda: act(store))

    assert silent.visitors < 18 / 2


def test_a_command_says_so(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMWAL_STORAGE__READ_TIMEOUT_S", "0.6")
    options = [part for name, value in silent.options.items() for part in ("--storage-option", f"{name}={value}")]

    done = _in_time(lambda: CliRunner().invoke(app, ["status", URI, *options]))

    assert isinstance(done.exception, UnavailableError)  # type: ignore[attr-defined]


def test_the_page_says_so(silent: Silent) -> None:
    class Source:
        def registry(self) -> Registry:
            return Registry(tables=(RegisteredTable(name="people", uri=URI),))

        def open(self, table: RegisteredTable) -> Table:
            return Table.open(table.uri, storage_options=silent.options, settings=Settings(storage=STORAGE))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(Source(), settings=PageSettings(patience_s=300)))
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return await client.get("/")

    answer = _in_time(lambda: asyncio.run(ask()))

    assert "did not answer" in answer.text  # type: ignore[attr-defined]


class _Reluctant(BaseHTTPRequestHandler):
    """Has nothing, and says so late."""

    asked = 0

    def do_HEAD(self) -> None:
        type(self).asked += 1
        time.sleep(0.7)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_a_store_that_answers_each_request_late_but_in_time_holds_nobody_for_ever(silent: Silent) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Reluctant)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {**silent.options, "aws_endpoint": f"http://127.0.0.1:{server.server_port}"}
    store = open_store(URI, storage_options=options, settings=StorageSettings(read_timeout_s=3, retry_wait_s=0))

    def read_on() -> None:
        for number in range(1000):
            assert store.head(f"object-{number}") is None

    try:
        with pytest.raises(UnavailableError):
            _in_time(read_on)
    finally:
        server.shutdown()
        server.server_close()

    assert 0 < _Reluctant.asked < 10

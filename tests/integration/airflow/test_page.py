"""The status page in Airflow's server: loaded when it is first asked for, beside everything else."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING

import pytest

from memwal_core.airflow import page
from memwal_core.airflow.page import WhenAsked

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_S = 10


class SlowPage:
    """A page that is loaded only when somebody else was served in the meantime."""

    def __init__(self) -> None:
        self.begun, self.may_end = Event(), Event()
        self.loaded = self.answered = 0

    def make_app(self) -> ASGIApp:
        self.begun.set()
        assert self.may_end.wait(LONGEST_S), "nobody else was served"
        self.loaded += 1
        return self.answer

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.answered += 1


async def _nothing() -> Message:
    return {}


async def _nowhere(message: Message) -> None:
    pass


def test_server_answers_others_while_the_page_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowPage()
    monkeypatch.setattr(page, "make_app", slow.make_app)

    async def ask_twice() -> None:
        app = WhenAsked()
        asked = [asyncio.create_task(app({}, _nothing, _nowhere)) for _ in range(2)]
        assert await asyncio.to_thread(slow.begun.wait, LONGEST_S)
        slow.may_end.set()
        await asyncio.gather(*asked)

    asyncio.run(ask_twice())
    assert (slow.loaded, slow.answered) == (1, 2)

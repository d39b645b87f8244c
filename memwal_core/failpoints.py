"""Failpoints: named places in the code at which a test steps in.

There a test lets a rival go first, the next call fail, or the process die; in production nothing happens. Code that
has failpoints takes a ``Failpoints``, and the names of its places are constants beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Failpoint(str):
    """The name of a place, for example ``merge.committed``."""

    __slots__ = ()

    @property
    def done(self) -> Failpoint:
        """The place after a call whose place before it is this one."""
        return Failpoint(f"{self}.done")


class Failpoints:
    """What happens at the places of one component: nothing, unless a test passes its own."""

    __slots__ = ()

    def hit(self, place: Failpoint) -> None:
        """Pass a place; what a test raises here, the code has to bear as if its next call had raised it."""

    @contextmanager
    def around(self, place: Failpoint) -> Iterator[None]:
        """Hit a place before a block and its ``done`` after it, unless the block raises.

        For calls of Lance: no store of a test sees the requests that Lance makes.
        """
        self.hit(place)
        yield
        self.hit(place.done)


NO_FAILPOINTS = Failpoints()

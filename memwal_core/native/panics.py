"""Panics of native libraries as ordinary errors.

Rust code called from Python (Lance, DataFusion) raises ``pyo3_runtime.PanicException`` where it meets a state that it
believes impossible. That class is no ``Exception`` and cannot be imported, so every handler would let it through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_MODULE = "pyo3_runtime"


class NativePanicError(RuntimeError):
    """A native library gave up in the middle of a call. What it was given is at fault, or the library is."""


@contextmanager
def panics_raised() -> Iterator[None]:
    """Raise panics of native code as ``NativePanicError``, which handlers of ``RuntimeError`` translate."""
    try:
        yield
    except BaseException as error:
        panic = panic_of(error)
        if panic is None:
            raise
        raise panic from error


def panic_of(error: BaseException) -> NativePanicError | None:
    """Return a panic of native code as an ordinary error; None if it is something else."""
    is_panic = type(error).__module__ == _MODULE
    return NativePanicError(f"the native library panicked: {error}") if is_panic else None

"""Which versions of pylance this package was proven with."""

from __future__ import annotations

import re

import lance

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import StorageSettings

FIRST = (14, 0, 0)
BEFORE = (14, 1)
"""The versions from ``FIRST`` and before ``BEFORE``; what pip is told in pyproject.toml, too."""


def require_proven_lance(settings: StorageSettings) -> None:
    """Refuse a pylance that another program's requirements, or nobody's, have brought in.

    What is written to a table (commits, file names, the MemWAL index) follows the version it was proven with.

    Raises:
        InvalidRequestError: It is another version, and nobody has allowed it.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", lance.__version__)[:3])
    if FIRST <= found < BEFORE or settings.unproven_lance:
        return
    first, before = (".".join(map(str, version)) for version in (FIRST, BEFORE))
    raise InvalidRequestError(
        "this package was not proven with this version of pylance, and would write tables with it",
        remedy=f'run `pip install "pylance>={first},<{before}"`, or set '
        "MEMWAL_STORAGE__UNPROVEN_LANCE=true for tables that you can lose",
        found=lance.__version__,
        proven=f"from {first}, before {before}",
    )

"""What an ingestion reads: places, their format, and what may not lie there."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.ingest.request import SourceFormat

_LOCAL_SCHEME = re.compile(r"^file:/+")
_HADOOPS_PATTERN = re.compile(r"\[\^|[{\\]")
_BY_SUFFIX = {
    ".parquet": SourceFormat.PARQUET,
    ".csv": SourceFormat.CSV,
    ".json": SourceFormat.JSON,
    ".jsonl": SourceFormat.JSON,
    ".ndjson": SourceFormat.JSON,
    ".lance": SourceFormat.LANCE,
}


@dataclass(frozen=True, slots=True)
class Source:
    """What to read.

    Attributes:
        places: Paths and addresses, or names of tables; at least one. CSV has a header and JSON one record per line,
            unless the options say otherwise.
        format: Their format; if None, it is derived from the suffix of the first.
        options: Of Spark's reader, for example ``sep``.
    """

    places: Sequence[str]
    format: SourceFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return the places for people."""
        return ", ".join(self.places)

    @property
    def known_format(self) -> SourceFormat:
        """The format, derived from the suffix if need be.

        Raises:
            InvalidRequestError: The suffix is unknown; name the format.
        """
        found = self.format or _BY_SUFFIX.get(Path(self.places[0].rstrip("/")).suffix)
        if found is None:
            raise InvalidRequestError(
                "the format of the source is unknown",
                remedy=f"name it (`memwal ingest --format`): {', '.join(SourceFormat)}",
                source=self.places[0],
            )
        return found


def batch_of_files(source: Source) -> str:
    """Return a batch id derived from the local files that are read: their names, sizes and modification times.

    Refuses sources that are not all local files.
    """
    found = []
    for place in source.places:
        paths = local_paths(place)
        missing = [each for each in paths or () if not os.path.exists(each)]
        is_elsewhere = hadoop_decides(place) or is_pattern_of_hadoop(place)
        if (missing or paths == []) and not is_elsewhere:
            raise nothing_at(place, missing)
        if source.known_format in (SourceFormat.LANCE, SourceFormat.TABLE) or paths is None or is_elsewhere:
            raise InvalidRequestError(
                "a batch id cannot be derived for this source",
                remedy="name the batch (`memwal ingest --batch ID`)",
                source=place,
            )
        for each in files_below(paths):
            status = os.stat(each)
            found.append((each, status.st_size, status.st_mtime_ns))
    return f"files-{hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]}"


def files_below(paths: Sequence[str]) -> list[str]:
    """Return the files of this machine that are read where some paths lead, in the order of their names."""
    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        for inside, directories, files in os.walk(path):
            directories[:] = [name for name in directories if not _is_hidden(name)]
            found += [os.path.join(inside, name) for name in files if not _is_hidden(name)]
    return sorted(found)


def _is_hidden(name: str) -> bool:
    """Tell whether Spark leaves out a file or directory of this name, such as ``_SUCCESS``."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def require_plain_files(place: str) -> None:
    """Raise ``InvalidRequestError`` for a pipe or device, which would hold Spark for ever, or a link that leads away.

    Looks at what this machine sees; other schemes have files only.
    """
    for start in local_paths(place) or ():
        inside = os.path.realpath(start)
        for found in _entries(inside):
            target = Path(os.path.realpath(found))  # Not ``resolve``, which fails where a link leads to itself.
            is_plain = target.is_file() or target.is_dir() or not target.exists()  # Whoever reads it says so.
            if not is_plain or not target.is_relative_to(inside):
                raise InvalidRequestError(
                    "the source has an entry that is no file of its own: a pipe, a device, or a link that leads away",
                    remedy="take it out of the source, or name the file that it leads to",
                    source=place,
                    entry=found,
                )


def _entries(place: str) -> Iterator[str]:
    yield place
    for directory, directories, files in os.walk(place):
        yield from (os.path.join(directory, name) for name in (*directories, *files) if not _is_hidden(name))


def nothing_at(place: str, missing: Sequence[str]) -> InvalidRequestError:
    """Return the error of a source that has no file."""
    return InvalidRequestError(
        "there is no file at a place of the source",
        remedy="correct its path or its format",
        source=place,
        missing=list(missing),
    )


def hadoop_decides(place: str) -> bool:
    """Tell whether Hadoop's configuration says where a path without a scheme leads."""
    return bool(os.environ.get("HADOOP_CONF_DIR")) and not place.startswith("file:")


def is_pattern_of_hadoop(place: str) -> bool:
    """Tell whether a place is a pattern that Hadoop reads its own way: ``{a,b}``, ``[^a]`` and backslashes."""
    path = _LOCAL_SCHEME.sub("/", place)
    return bool(_HADOOPS_PATTERN.search(path)) and not os.path.exists(path)


def local_paths(place: str) -> list[str] | None:
    """Return the files and directories that a place, perhaps a pattern, names; None if it is on another machine.

    A pattern does not name what is hidden.
    """
    path = _LOCAL_SCHEME.sub("/", place)
    if "://" in path:
        return None
    if not glob.has_magic(path) or os.path.exists(path):
        return [path]
    return sorted(each for each in glob.glob(path) if not _is_hidden(os.path.basename(each)))

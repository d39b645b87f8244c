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

from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.jobs.ingest.request import SourceFormat

_LOCAL_SCHEME = re.compile(r"^file:/+")
_HADOOPS_PATTERN = re.compile(r"\[\^|[{\\]")
_HADOOPS_OWN = re.compile(r"[*?\[\]{}\\]")
_BEING_COPIED = "._COPYING_"
_CHOOSING = frozenset({"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"})
"""Options by which Spark's reader leaves out files."""
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
        names_batch: Its files gave the batch its id, so that exactly those may be read.
    """

    places: Sequence[str]
    format: SourceFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    names_batch: bool = False

    def __str__(self) -> str:
        """Return the places for people."""
        return ", ".join(self.places)

    @property
    def paths_for_hadoop(self) -> list[str]:
        """The places, with local patterns resolved: Hadoop would take what is hidden, too."""
        return [path for place in self.places for path in paths_for_hadoop(place)]

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

    Raises:
        InvalidRequestError: There is no file at a place, or only Spark knows what is read.
    """
    choosing = [name for name in source.options if name.lower() in _CHOOSING]
    is_told = bool(choosing) or source.known_format in (SourceFormat.LANCE, SourceFormat.TABLE)
    found: list[tuple[str, int, int]] = []
    for place in source.places:
        is_elsewhere = is_told or hadoop_decides(place) or is_pattern_of_hadoop(place)
        files = [] if is_elsewhere else [each for each in local_files(place) or () if os.path.isfile(each)]
        if not files:
            raise InvalidRequestError(
                "a batch id cannot be derived for this source",
                remedy="name the batch (`memwal ingest --batch ID`)",
                source=place,
                options=choosing,
            )
        stats = [(str(each), each.stat()) for each in sorted(map(Path, files))]
        found += [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return f"files-{hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]}"


def require_same_files(source: Source, batch: str) -> None:
    """Raise ``ConflictError`` if the files of a source are no longer those that gave the batch its id."""
    found = batch_of_files(source)
    if found != batch:
        raise ConflictError(
            "the files of the source changed while they were read; nothing was written",
            remedy="run it again once whoever writes the files is done",
            source=str(source),
            expected=batch,
            found=found,
        )


def local_files(place: str) -> list[str] | None:
    """Return the files that are read at a place, in the order of their names; None if it is on another machine.

    All below a directory, but for what is hidden, and a file that is itself named.

    Raises:
        InvalidRequestError: There is none.
    """
    paths = local_paths(place)
    if paths is None:
        return None
    missing = [path for path in paths if not os.path.exists(path)]
    found = sorted(entry for path in paths for entry in _entries(path) if not os.path.isdir(entry))
    if missing or not found:
        raise nothing_at(place, missing)
    return found


def is_hidden(name: str) -> bool:
    """Tell whether a file or directory of this name is passed over, as Spark does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(_BEING_COPIED)


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
    """Yield a place and all files and directories below it that are not hidden."""
    yield place
    for directory, directories, files in os.walk(place):
        directories[:] = [name for name in directories if not is_hidden(name)]
        yield from (os.path.join(directory, name) for name in (*directories, *files) if not is_hidden(name))


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
    path = without_file_scheme(place)
    return bool(_HADOOPS_PATTERN.search(path)) and not os.path.exists(path)


def without_file_scheme(place: str) -> str:
    """Return a place without the scheme ``file``."""
    return _LOCAL_SCHEME.sub("/", place)


def paths_for_hadoop(place: str) -> list[str]:
    """Return a place as Hadoop is to read it: what a local pattern names, or else the place."""
    paths = None if hadoop_decides(place) or is_pattern_of_hadoop(place) else local_paths(place)
    if not paths or not _HADOOPS_OWN.search(place):
        return [place]
    scheme = "file:" if _LOCAL_SCHEME.match(place) else ""
    return [scheme + _HADOOPS_OWN.sub(r"\\\g<0>", path) for path in paths]


def local_paths(place: str) -> list[str] | None:
    """Return the files and directories that a place, perhaps a pattern, names; None if it is on another machine.

    A pattern does not name what is hidden.
    """
    path = without_file_scheme(place)
    if "://" in path:
        return None
    if not glob.has_magic(path) or os.path.exists(path):
        return [path]
    return sorted(each for each in glob.glob(path) if not is_hidden(os.path.basename(each)))

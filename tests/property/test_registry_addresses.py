"""No spelling of an address leaves an `include` or avoids an `exclude`, whatever opens it."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from memwal_core.errors import InvalidRequestError
from memwal_core.registry import Registry, parse_registry

EXAMPLES = settings(max_examples=200, derandomize=True, deadline=None, database=None)

Find = Callable[[str], str]
"""Returns the address that is opened for a spelling; raises what refuses it."""


# --- object stores ---------------------------------------------------------------------------------------------------

LAKE = """
exclude = ["s3://lake/open/private/*", "gs://lake/*"]
[[include]]
pattern = "s3://lake/open/*"
"""
SCHEMES = ("s3://", "S3://", "s3a://", "S3A://", "s3n://", "s3:/", "s3:", "gs://", "GS://", "file://", "http://", "")
HOSTS = ("lake", "LAKE", "Lake", "lake.", "lake:443", "key:word@lake", "@lake", "ｌake", "läke", "lak%65", "")
PARTS = (
    "open", "private", "OPEN", "a", "b.lance", ".", "..", "", "%2e%2e", "%2E", "..%2f", "priv%61te", "open%2fprivate",
    "\\", "..\\", "private\\..", "é", unicodedata.normalize("NFD", "é"), "*", "?", "#", "a;b", "\t", "\x00", " ", "~",
)  # fmt: skip
remote = st.builds(
    lambda scheme, host, first, parts, end: f"{scheme}{host}/{first}" + "/".join(parts) + end,
    st.just("s3://") | st.sampled_from(SCHEMES),
    st.just("lake") | st.sampled_from(HOSTS),
    st.sampled_from(("open/", "")),
    st.lists(st.sampled_from(PARTS), max_size=6),
    st.sampled_from(("", "/", "//", "/.", "?x", "#x")),
)


REGISTRY = parse_registry(LAKE, "tables.toml")


def lake(name_or_uri: str) -> str:
    return REGISTRY.find(name_or_uri).uri


def naive_lake(name_or_uri: str) -> str:
    """Compare text with text: what a registry must not do."""
    excluded = fnmatchcase(name_or_uri, "s3://lake/open/private/*")
    if excluded or not fnmatchcase(name_or_uri, "s3://lake/open/*"):
        raise InvalidRequestError("refused", remedy="-")
    return name_or_uri


def leads_astray(spelling: str, ask: Find) -> bool:
    """Whether any reading of an accepted address, by whatever opens it, lies elsewhere or where it is excluded."""
    try:
        asked = ask(spelling)
    except InvalidRequestError:
        return False
    scheme, _, rest = unquote(asked).replace("\\", "/").partition("://")
    host, _, path = rest.partition("/")
    places = {path, posixpath.normpath(path), posixpath.normpath(path.partition("?")[0].partition("#")[0])}
    return (
        scheme != "s3"
        or host != "lake"
        or any(not place.startswith("open/") or place.startswith("open/private/") for place in places)
        or ("%" in spelling and "%" in asked)
    )


@EXAMPLES
@given(remote)
def test_no_spelling_of_an_object_store_leads_astray(spelling: str) -> None:
    assert not leads_astray(spelling, lake)


@EXAMPLES
@given(remote)
@example("s3://lake/open/ /")
def test_an_accepted_spelling_and_its_canonical_one_are_the_same_table(spelling: str) -> None:
    try:
        found = lake(spelling)
    except InvalidRequestError:
        return
    assert lake(found) == found


@EXAMPLES
@given(st.lists(st.sampled_from(["a", "b.lance", "é", "x y", "~"]), min_size=1, max_size=4))
def test_plain_spellings_are_found(parts: list[str]) -> None:
    plain = "s3://lake/open/" + "/".join(part.strip() for part in parts)

    assert {lake(spelling) for spelling in (plain, f"{plain}/", plain.replace("s3://lake", "S3A://LAKE"))} == {plain}


def test_text_compared_with_text_is_led_astray() -> None:
    spelling = find(remote, lambda spelling: leads_astray(spelling, naive_lake), settings=EXAMPLES)

    assert naive_lake(spelling) == spelling
    with pytest.raises(NoSuchExample):
        find(remote, lambda spelling: leads_astray(spelling, lake), settings=EXAMPLES)


# --- local paths -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """Tables on a disk: some in an included directory, some in an excluded one below it, some outside."""

    root: Path
    registry: Registry

    def find(self, name_or_uri: str) -> str:
        return self.registry.find(name_or_uri).uri

    def naive(self, name_or_uri: str) -> str:
        path = name_or_uri.removeprefix("file://")
        if fnmatchcase(path, f"{self.root}/open/private/*") or not fnmatchcase(path, f"{self.root}/open/*"):
            raise InvalidRequestError("refused", remedy="-")
        return path

    def leads_astray(self, spelling: str, ask: Find) -> bool:
        """Whether the operating system opens another directory than one below ``open`` that is not excluded."""
        try:
            asked = Path(ask(spelling))
        except InvalidRequestError:
            return False
        if not asked.exists():
            return False  # there is nothing to reach
        real = Path(os.path.realpath(asked, strict=True))
        return not real.is_relative_to(self.root / "open") or real.is_relative_to(self.root / "open" / "private")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    root = tmp_path_factory.mktemp("disk").resolve()
    for folder in ("open/a", "open/private/a", "secret/a", "open/é", "open/%2e%2e", "open/b\\c"):
        (root / folder).mkdir(parents=True)
    links = {"link": root / "open", "open/out": root / "secret", "open/in": root / "open" / "private", "open/up": ".."}
    for name, target in links.items():
        (root / name).symlink_to(target)
    text = f'exclude = ["{root}/open/private/*", "{root}/open/private"]\n[[include]]\npattern = "{root}/open/*"\n'
    before = Path.cwd()
    os.chdir(root / "open")  # what a relative path begins at
    try:
        yield Disk(root, parse_registry(text, str(root / "tables.toml")))
    finally:
        os.chdir(before)


LOCAL_PARTS = (
    "open", "private", "secret", "a", "link", "out", "in", "up", ".", "..", "", "é", unicodedata.normalize("NFD", "é"),
    "%2e%2e", "..%2f", "OPEN", "\\", "b\\c", "*", " ", "~",
)  # fmt: skip
BEGINNINGS = (
    "{root}/open/", "{root}/link/", "{root}/",
    "/{root}/", "//{root}/", "{root}/./", "{root}/open/../", "file://{root}/", "FILE://{root}/",
    "file:///{root}/", "file:{root}/", "file://localhost{root}/", "/proc/self/root{root}/", "/proc/self/cwd/../", "",
    "./", "../", "{root}//", "{root}\\", "\\{root}/", "C:{root}/", "s3:/{root}/",
)  # fmt: skip
local = st.builds(
    lambda beginning, parts, end: beginning + "/".join(parts) + end,
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from(LOCAL_PARTS), max_size=6),
    st.sampled_from(("", "/", "//", "/.", "/..")),
)


@EXAMPLES
@given(spelling=local)
def test_no_spelling_of_a_local_path_leads_astray(disk: Disk, spelling: str) -> None:
    spelled = spelling.replace("{root}", str(disk.root))

    assert not disk.leads_astray(spelled, disk.find)


@EXAMPLES
@given(spelling=local)
@example(spelling="/proc/self/cwd/../open/a")
def test_exactly_the_included_directories_are_found_however_they_are_spelled(disk: Disk, spelling: str) -> None:
    spelled = spelling.replace("{root}", str(disk.root))
    is_address = not spelled.lower().startswith("file:") and ":" not in spelled and "/" in spelled
    if not is_address or spelled != spelled.strip() or not Path(spelled).is_dir():
        return
    real = Path(os.path.realpath(spelled))
    inside = real.is_relative_to(disk.root / "open") and real != disk.root / "open"
    expected = inside and not real.is_relative_to(disk.root / "open" / "private")

    try:
        assert disk.find(spelled) == str(real)
    except InvalidRequestError:
        assert not expected
    else:
        assert expected


def test_local_text_compared_with_text_is_led_astray(disk: Disk) -> None:
    def astray(spelling: str, ask: Find) -> bool:
        return disk.leads_astray(spelling.replace("{root}", str(disk.root)), ask)

    assert find(local, lambda spelling: astray(spelling, disk.naive), settings=EXAMPLES)
    with pytest.raises(NoSuchExample):
        find(local, lambda spelling: astray(spelling, disk.find), settings=EXAMPLES)


def test_a_name_without_an_entry_is_not_taken_for_a_path(disk: Disk) -> None:
    """A relative path has the form of a name, and no pattern over addresses knows where it leads."""
    text = f'exclude = ["{disk.root}/*"]\n[[include]]\npattern = "*"\n'
    for more in ("", "single_user = true\n"):
        registry = parse_registry(more + text, str(disk.root / "tables.toml"))
        for name in ("a", "private", "a\n"):
            with pytest.raises(InvalidRequestError):
                registry.find(name)

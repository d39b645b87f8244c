import json

import pytest

from memwal_core.errors import (
    CommitUnknownError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.format.paths import version_hint_path
from memwal_core.register import Entry, VersionedRegister
from memwal_core.storage import open_store
from testkit.faults.faulty_store import FaultyStore, Moment, Rule

DIRECTORY = "some/where"
HINT = version_hint_path(DIRECTORY)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory:///register"))


@pytest.fixture
def register(store: FaultyStore) -> VersionedRegister:
    return VersionedRegister(store, DIRECTORY, ".doc")


def _fill(register: VersionedRegister, last: int) -> None:
    for version in range(1, last + 1):
        register.create(version, b"v%d" % version)


def _set_hint(store: FaultyStore, data: bytes) -> None:
    store.put(HINT, data)


def test_empty_register_has_no_latest_version(register: VersionedRegister) -> None:
    assert register.latest() is None
    assert register.versions() == []


@pytest.mark.req("MAN-14")
@pytest.mark.parametrize("calls", range(1, 8))
def test_deletion_at_any_moment_of_a_read_whose_hint_is_old_makes_no_old_version_the_newest(
    register: VersionedRegister, store: FaultyStore, calls: int
) -> None:
    """A reader that read a version before its deletion, and then looked for the next one, took it for the last."""
    _fill(register, 6)
    _set_hint(store, json.dumps({"version": 2}).encode())
    deleting = VersionedRegister(store.inner, DIRECTORY, ".doc")
    store.add(Rule(lambda _: deleting.delete_before(5) and None, Moment.BEFORE, nth=calls))

    assert register.latest() == Entry(6, b"v6")


@pytest.mark.req("MAN-09", "MAN-10", "MAN-12")
@pytest.mark.parametrize("hint", [None, 1, 2, 3, 7])
def test_any_older_hint_leads_to_the_newest_version(
    register: VersionedRegister, store: FaultyStore, hint: int | None
) -> None:
    _fill(register, 7)
    if hint is None:
        store.delete(HINT)
    else:
        _set_hint(store, json.dumps({"version": hint}).encode())
    assert register.latest() == Entry(7, b"v7")


@pytest.mark.req("MAN-12")
@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b"5",
        b"null",
        b'{"version": "2"}',
        b'{"version": 2.0}',
        b'{"version": true}',
        b'{"version": 0}',
        b'{"version": -4}',
        b'{"version": 18446744073709551616}',
        b'{"version": null}',
        b"[" * 100_000,
    ],
)
def test_corrupt_hint_is_handled_like_a_missing_one(
    register: VersionedRegister, store: FaultyStore, hint: bytes
) -> None:
    _fill(register, 3)
    _set_hint(store, hint)
    assert register.latest() == Entry(3, b"v3")


@pytest.mark.req("MAN-12", "MAN-13")
@pytest.mark.parametrize("hint", [9, 2**64 - 1])
def test_hint_beyond_the_newest_version_falls_back_to_listing(
    register: VersionedRegister, store: FaultyStore, hint: int
) -> None:
    _fill(register, 3)
    _set_hint(store, json.dumps({"version": hint}).encode())
    assert register.latest() == Entry(3, b"v3")


@pytest.mark.req("MAN-11")
def test_normal_read_uses_one_get_and_one_probe_and_no_listing(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 4)
    store.calls.clear()
    register.latest()
    assert [call.operation for call in store.calls] == ["get", "head", "get"]
    assert [call.path for call in store.calls] == [HINT, register.path(5), register.path(4)]


@pytest.mark.req("MAN-11")
def test_a_known_version_takes_the_place_of_the_hint(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 4)
    store.calls.clear()
    assert register.latest(3) == Entry(4, b"v4")
    assert HINT not in [call.path for call in store.calls]
    store.delete(register.path(1))
    assert register.latest(1) == Entry(4, b"v4")


@pytest.mark.req("MAN-10", "MAN-12")
def test_a_version_without_a_hint_of_its_own_is_found(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 3)
    store.calls.clear()
    register.create(4, b"v4", with_hint=False)
    assert [call.operation for call in store.calls] == ["put_if_absent", "head"]
    found = register.latest()
    assert found == Entry(4, b"v4")
    assert found is not None
    assert (found.hinted, found.is_hinted) == (3, False)


@pytest.mark.req("MAN-10", "MAN-12")
@pytest.mark.parametrize(("hinted", "version", "first"), [(4, 4, True), (3, 4, False), (0, 1, True), (0, 2, False)])
def test_a_version_is_hinted_where_a_search_finds_it_first(hinted: int, version: int, first: bool) -> None:
    assert Entry(version, b"", hinted).is_hinted == first


@pytest.mark.req("MAN-10", "MAN-11")
def test_stale_hint_costs_one_probe_per_version_and_no_listing(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 7)
    _set_hint(store, b'{"version": 3}')
    store.calls.clear()
    assert register.latest() == Entry(7, b"v7")
    assert store.count("list_objects", "list_directories") == 0
    assert [call.path for call in store.calls if call.operation == "head"] == [register.path(v) for v in range(4, 9)]


@pytest.mark.req("MAN-10", "MAN-11")
def test_missing_hint_costs_one_probe_per_version_and_no_listing(
    register: VersionedRegister, store: FaultyStore
) -> None:
    _fill(register, 3)
    store.delete(HINT)
    store.calls.clear()
    assert register.latest() == Entry(3, b"v3")
    assert store.count("list_objects", "list_directories") == 0
    assert [call.path for call in store.calls if call.operation == "head"] == [register.path(v) for v in range(2, 5)]


@pytest.mark.req("MAN-13")
def test_versions_and_hint_removed_by_gc_fall_back_to_listing(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 6)
    for version in range(1, 5):
        store.delete(register.path(version))
    store.delete(HINT)
    assert register.latest() == Entry(6, b"v6")


@pytest.mark.req("MAN-13")
def test_version_deleted_between_probe_and_read_is_searched_anew(
    register: VersionedRegister, store: FaultyStore
) -> None:
    _fill(register, 3)
    _set_hint(store, b'{"version": 1}')

    def overtake(_: object) -> None:
        for version in range(4, 8):
            store.inner.put_if_absent(register.path(version), b"v%d" % version)
        for version in range(1, 6):
            store.inner.delete(register.path(version))

    # The probe for version 4 finds nothing; before version 3 is read, it is deleted.
    store.add(Rule(overtake, Moment.AFTER, frozenset({"head"}), lambda path: path == register.path(4)))
    assert register.latest() == Entry(7, b"v7")


def test_versions_that_always_vanish_are_reported_as_unavailable(
    register: VersionedRegister, store: FaultyStore
) -> None:
    _fill(register, 1)

    def vanish(_: object) -> None:
        raise ObjectNotFoundError("gone", remedy="none")

    store.add(Rule(vanish, Moment.BEFORE, frozenset({"get"}), lambda path: path == register.path(1), times=None))
    with pytest.raises(UnavailableError):
        register.latest()


@pytest.mark.req("MAN-02", "MAN-04")
def test_second_write_of_a_version_is_refused_and_changes_nothing(register: VersionedRegister) -> None:
    register.create(1, b"first")
    with pytest.raises(ObjectExistsError):
        register.create(1, b"second")
    assert register.read(1) == b"first"


@pytest.mark.req("MAN-07", "FMT-21")
def test_version_is_put_before_the_hint(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 2)
    writes = [(call.operation, call.path) for call in store.calls if call.operation.startswith("put")]
    assert writes == [
        ("put_if_absent", register.path(1)),
        ("put", HINT),
        ("put_if_absent", register.path(2)),
        ("put", HINT),
    ]
    assert json.loads(store.get(HINT)) == {"version": 2}


@pytest.mark.req("MAN-08")
def test_failed_hint_does_not_fail_the_commit(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 1)
    store.fail("put", path=lambda path: path == HINT)
    register.create(2, b"v2")
    assert json.loads(store.get(HINT)) == {"version": 1}
    assert register.latest() == Entry(2, b"v2")


def test_lost_reply_of_the_version_is_reported_and_the_repeat_recognises_its_own(
    register: VersionedRegister, store: FaultyStore
) -> None:
    store.lose_reply("put_if_absent")
    with pytest.raises(UnavailableError):
        register.create(1, b"mine")
    register.create(1, b"mine")
    with pytest.raises(ObjectExistsError):
        register.create(1, b"another's")


def test_foreign_files_are_no_versions(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 2)
    for name in ("x.tmp.ab12", "1" * 64, "1" * 63 + ".doc", "README"):
        store.put(f"{DIRECTORY}/{name}", b"?")
    assert register.versions() == [1, 2]


def test_missing_version_is_not_found(register: VersionedRegister) -> None:
    with pytest.raises(ObjectNotFoundError):
        register.read(1)


@pytest.mark.req("GC-13")
def test_deletion_refreshes_the_hint_first_and_goes_upwards(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 6)
    _set_hint(store, b'{"version": 2}')
    store.calls.clear()
    assert register.delete_before(5) == [1, 2, 3, 4]
    changes = [(call.operation, call.path) for call in store.calls if call.operation in {"put", "delete"}]
    assert changes == [("put", HINT), *(("delete", register.path(version)) for version in (1, 2, 3, 4))]
    assert json.loads(store.get(HINT)) == {"version": 6}
    assert register.versions() == [5, 6]


@pytest.mark.req("GC-13")
@pytest.mark.parametrize("keep_from", [3, 4])
def test_deletion_up_to_the_newest_version_is_refused(register: VersionedRegister, keep_from: int) -> None:
    _fill(register, 3)
    with pytest.raises(InvalidRequestError):
        register.delete_before(keep_from)
    assert register.versions() == [1, 2, 3]


@pytest.mark.req("GC-13")
def test_deletion_up_to_a_missing_version_deletes_those_below_it(
    register: VersionedRegister, store: FaultyStore
) -> None:
    """Two passes of a copy leave it so, if the original collected versions in between; no collection ended well."""
    _fill(register, 8)
    for version in (3, 4):
        store.delete(register.path(version))
    assert register.delete_before(3) == [1, 2]
    assert register.versions() == [5, 6, 7, 8]
    store.delete(register.path(7))
    with pytest.raises(InvalidRequestError):
        register.delete_before(7)


@pytest.mark.req("GC-13")
def test_deletion_that_cannot_write_the_hint_deletes_nothing(register: VersionedRegister, store: FaultyStore) -> None:
    _fill(register, 3)
    store.fail("put")
    with pytest.raises(UnavailableError):
        register.delete_before(2)
    assert register.versions() == [1, 2, 3]


@pytest.mark.req("MAN-13")
@pytest.mark.parametrize("deleted", [0, 1, 2, 3])
def test_interrupted_deletion_leaves_the_newest_version_findable(
    register: VersionedRegister, store: FaultyStore, deleted: int
) -> None:
    _fill(register, 6)
    store.fail("delete", nth=deleted + 1)
    with pytest.raises(UnavailableError):
        register.delete_before(5)
    assert register.latest() == Entry(6, b"v6")
    for hint in (1, 3, 6):
        _set_hint(store, json.dumps({"version": hint}).encode())
        assert register.latest() == Entry(6, b"v6")


def test_late_committer_into_a_deleted_place_is_told_and_does_not_move_the_hint(
    register: VersionedRegister, store: FaultyStore
) -> None:
    _fill(register, 8)
    register.delete_before(7)
    # Somebody who read version 2 an age ago finds version 3 free.
    with pytest.raises(CommitUnknownError):
        register.create(3, b"late")
    assert json.loads(store.get(HINT)) == {"version": 8}
    assert register.latest() == Entry(8, b"v8")


def test_late_first_version_of_a_register_that_has_a_history_is_told_and_is_not_the_newest(
    register: VersionedRegister, store: FaultyStore
) -> None:
    """A creator that stalled set a region back to its beginning, once old versions of its manifest were deleted."""
    rival = VersionedRegister(store.inner, DIRECTORY, ".doc")

    def write_and_delete(_: object) -> None:
        _fill(rival, 8)
        rival.delete_before(7)

    store.add(Rule(write_and_delete, Moment.BEFORE, frozenset({"put_if_absent"})))
    with pytest.raises(CommitUnknownError):
        register.create(1, b"late")

    assert register.latest() == Entry(8, b"v8")
    assert register.versions() == [7, 8]


def test_first_version_counts_although_a_rival_has_gone_on_from_it(
    register: VersionedRegister, store: FaultyStore
) -> None:
    rival = VersionedRegister(store.inner, DIRECTORY, ".doc")
    store.add(Rule(lambda _: rival.create(2, b"v2"), Moment.AFTER, frozenset({"put_if_absent"})))

    register.create(1, b"v1")

    assert register.latest() == Entry(2, b"v2")


def test_late_committer_reads_on_from_its_known_version_to_the_newest(register: VersionedRegister) -> None:
    """It took what it had written in a deleted place for the newest version, and went on from there."""
    _fill(register, 8)
    register.delete_before(7)
    with pytest.raises(CommitUnknownError):
        register.create(3, b"late")

    assert register.latest(known=2) == Entry(8, b"v8")


def test_refusal_after_a_version_was_written_does_not_say_that_nothing_was(
    register: VersionedRegister, store: FaultyStore
) -> None:
    """Credentials that ended between the write and the look behind it made a claim that had landed a refused one."""
    register.create(1, b"v1")

    def refuse(_: object) -> None:
        raise InvalidRequestError("the store refused access", remedy="check credentials")

    store.add(Rule(refuse, Moment.BEFORE, frozenset({"head"})))
    with pytest.raises(CommitUnknownError) as caught:
        register.create(2, b"v2")

    assert caught.value.facts["cause"] == "the store refused access"
    assert register.read(2) == b"v2"

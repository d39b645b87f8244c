"""Copies of files that are too large for one request, and of files that change while they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.errors import FencedError, ObjectExistsError, UnavailableError
from memwal_core.jobs.backup.copying import Copier, GoneError
from memwal_core.jobs.backup.plan import CopiedFile
from memwal_core.settings import StorageSettings
from memwal_core.storage import ObjectStore, open_store
from testkit.faults.faulty_proxy import FaultyProxy
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.s3_server import S3Server

MIB = 1 << 20
MOST_IN_A_REQUEST = 8 * MIB
CONTENT = bytes(range(256)) * (20 * MIB // 256) + b"end"


@pytest.fixture
def remote(s3: S3Server, proxy: FaultyProxy, tmp_path: Path) -> ObjectStore:
    return open_store(
        s3.uri(f"bucket/{tmp_path.name}"),
        storage_options={**s3.storage_options, "aws_endpoint": proxy.endpoint},
        settings=StorageSettings(max_attempts=3, retry_wait_s=0),
    )


@pytest.fixture
def source(tmp_path: Path) -> FaultyStore:
    local = open_store(str(tmp_path / "source"))
    local.put("data/large.lance", CONTENT)
    return FaultyStore(local)


def copy_large(
    source: ObjectStore, target: ObjectStore, size_bytes: int = len(CONTENT), progressed: Callable[[], None] = str
) -> None:
    copier = Copier(source, target, 2, before=str, progressed=progressed)
    copier.copy([CopiedFile("data/large.lance", "data/copied.lance", size_bytes)])


def sent(proxy: FaultyProxy) -> list[int]:
    """Return how many bytes each request carried."""
    return [int(headers.get("content-length", "0")) for _, _, headers in proxy.requests()]


@pytest.mark.s3
def test_large_file_is_sent_in_parts_that_no_store_refuses(
    source: FaultyStore, remote: ObjectStore, proxy: FaultyProxy
) -> None:
    """S3 takes no more than 5 GiB in one request, and whoever sends it has it in memory."""
    copy_large(source, remote)

    assert remote.get("data/copied.lance") == CONTENT
    assert max(sent(proxy)) == MOST_IN_A_REQUEST


@pytest.mark.s3
@pytest.mark.parametrize("size_bytes", [MOST_IN_A_REQUEST + 1, 2 * MOST_IN_A_REQUEST])
def test_file_of_whole_parts_and_one_of_a_byte_more_are_copied_whole(
    source: FaultyStore, remote: ObjectStore, size_bytes: int
) -> None:
    source.put("data/large.lance", CONTENT[:size_bytes])

    copy_large(source, remote, size_bytes)

    assert remote.get("data/copied.lance") == CONTENT[:size_bytes]


@pytest.mark.s3
def test_large_file_goes_from_one_object_store_to_another(remote: ObjectStore) -> None:
    remote.put("data/large.lance", CONTENT)

    copy_large(remote, remote)

    assert remote.get("data/copied.lance") == CONTENT


@pytest.mark.s3
@pytest.mark.parametrize(("method", "path"), [("POST", "uploads"), ("PUT", "partNumber=2"), ("POST", "uploadId")])
def test_upload_goes_on_after_a_request_that_the_store_could_not_serve(
    source: FaultyStore, remote: ObjectStore, proxy: FaultyProxy, method: str, path: str
) -> None:
    proxy.answer(method, 503, path=path)

    copy_large(source, remote)

    assert remote.get("data/copied.lance") == CONTENT


@pytest.mark.s3
def test_upload_whose_completion_was_not_answered_is_found_complete(
    source: FaultyStore, remote: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.lose_reply("POST", path="uploadId")

    copy_large(source, remote)

    assert remote.get("data/copied.lance") == CONTENT


@pytest.mark.s3
def test_upload_that_fails_leaves_neither_an_object_nor_parts(
    source: FaultyStore, remote: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.answer("PUT", 503, path="partNumber=2", times=3)

    with pytest.raises(UnavailableError):
        copy_large(source, remote)

    assert remote.head("data/copied.lance") is None
    assert proxy.count("DELETE") == 1


@pytest.mark.s3
def test_lost_lease_ends_an_upload_at_the_next_part(
    source: FaultyStore, remote: ObjectStore, proxy: FaultyProxy
) -> None:
    pieces_before_the_loss = iter([None, None])

    def progressed() -> None:
        if next(pieces_before_the_loss, "lost") == "lost":
            raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        copy_large(source, remote, progressed=progressed)

    assert remote.head("data/copied.lance") is None
    assert proxy.count("DELETE") == 1


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(str(tmp_path / "target"))
    remote: ObjectStore = request.getfixturevalue("remote")
    return remote


def test_other_file_of_the_name_is_not_replaced(source: FaultyStore, target: ObjectStore) -> None:
    target.put("data/copied.lance", b"other")

    with pytest.raises(ObjectExistsError):
        copy_large(source, target)

    assert target.get("data/copied.lance") == b"other"


@pytest.mark.parametrize("by_bytes", [1, 9 * MIB, -1, -9 * MIB])
def test_file_that_grew_or_shrank_is_not_copied_and_the_error_names_both_sizes(
    source: FaultyStore, target: ObjectStore, by_bytes: int
) -> None:
    source.put("data/large.lance", (CONTENT * 2)[: len(CONTENT) + by_bytes])

    with pytest.raises(GoneError, match=f"has {len(CONTENT) + by_bytes} bytes instead of {len(CONTENT)}"):
        copy_large(source, target)

    assert list(target.list_objects("")) == []


def test_file_that_goes_while_it_is_copied_is_told_as_gone(source: FaultyStore, target: ObjectStore) -> None:
    def remove(_: Call) -> None:
        source.inner.delete("data/large.lance")

    source.add(Rule(remove, Moment.BEFORE, frozenset({"get_range"}), nth=2))

    with pytest.raises(GoneError, match=r"data/large\.lance"):
        copy_large(source, target)

    assert list(target.list_objects("")) == []

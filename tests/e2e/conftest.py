"""What tests of whole clusters share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.job_cluster import JobCluster, started_job_cluster


@pytest.fixture(scope="session")
def job_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobCluster]:
    """Start one cluster for all jobs."""
    with started_job_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster

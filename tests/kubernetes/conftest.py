"""Fixtures of the tests on a cluster: the double, or the cluster that TEST_CLUSTER_KUBECONFIG names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.deployment import Services, local_services
from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.plain_jobs import Clients, clients_of

_REAL = "TEST_CLUSTER_KUBECONFIG"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a namespace of the module's own."""
    if os.environ.get(_REAL):
        from tests.kubernetes.real_setup import real_cluster

        with real_cluster(tmp_path_factory.mktemp("real")) as real:
            yield real
    else:
        with DoubleCluster() as double:
            yield double


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Storage and database that the cluster's pods reach."""
    if os.environ.get(_REAL):
        from tests.kubernetes.real_setup import real_services

        with real_services() as services:
            yield services
    else:
        with local_services() as services:
            yield services


@pytest.fixture(scope="module")
def kube(cluster: Cluster) -> Iterator[Clients]:
    """The real client on the cluster."""
    with clients_of(cluster) as clients:
        yield clients


@pytest.fixture
def double() -> Iterator[DoubleCluster]:
    """A double of the test's own, whatever the cluster is."""
    with DoubleCluster() as double:
        yield double


@pytest.fixture
def on_double(double: DoubleCluster) -> Iterator[Clients]:
    """The real client on the double."""
    with clients_of(double) as clients:
        yield clients

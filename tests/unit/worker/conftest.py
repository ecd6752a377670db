"""Fixtures of the worker's tests."""

from collections.abc import Iterator

import pytest

from tests.unit.worker.endpoint import Endpoint


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()

"""One served shop for the tests that only read, a fresh one for those that write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.api.api_server import Api, serving, shop


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Serve a shop that no test changes."""
    with shop(tmp_path_factory.mktemp("seen")) as lake, serving(lake) as api:
        yield api


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Serve a shop of its own."""
    with shop(tmp_path) as lake, serving(lake) as api:
        yield api

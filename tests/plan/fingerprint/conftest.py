"""What tests of plans share."""

from pathlib import Path

import pytest

from tests.plan.fingerprint.disk_projects import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return an empty project."""
    return Shop(tmp_path)

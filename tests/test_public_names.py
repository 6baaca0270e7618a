"""What `runnel.NAME` gives, and what it says of names that do not exist."""

from importlib.util import find_spec

import pytest

import runnel


def test_every_public_name_is_there() -> None:
    assert [name for name in runnel.__all__ if not hasattr(runnel, name)] == []


@pytest.mark.parametrize("name", ["kit", "nothing", "_private"])
def test_a_name_that_does_not_exist_is_no_attribute(name: str) -> None:
    assert hasattr(runnel, name) == (find_spec(f"runnel.{name}") is not None)
    with pytest.raises(AttributeError, match="close: 'source'"):
        _ = runnel.sorce

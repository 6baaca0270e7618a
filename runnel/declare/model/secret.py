"""Refer to secrets by name, so that they can be passed around and printed without revealing their values."""

import os
from dataclasses import dataclass
from typing import overload

from runnel.errors import Mistake


@dataclass(frozen=True)
class Secret:
    """The name of an environment variable whose value must never be shown.

    >>> Secret("PG_PASSWORD"), str(Secret("PG_PASSWORD"))
    (secret(PG_PASSWORD), 'secret(PG_PASSWORD)')
    """

    name: str

    def __repr__(self) -> str:
        """Return the secret's name, never its value."""
        return f"secret({self.name})"

    def reveal(self) -> str:
        """Read the secret's value from the environment."""
        value = os.environ.get(self.name)
        if value is None:
            what = f"the secret {self.name} comes from the variable {self.name}, which is not set"
            raise Mistake("PROJECT_SECRET", what, fix=f"export {self.name}=...")
        return value


@overload
def reveal_if_secret(value: str | Secret, at: str | None = None) -> str: ...


@overload
def reveal_if_secret(value: None, at: str | None = None) -> None: ...


@overload
def reveal_if_secret(value: str | Secret | None, at: str | None = None) -> str | None: ...


def reveal_if_secret(value: str | Secret | None, at: str | None = None) -> str | None:
    """Return a value, revealed if it is a secret; the error about an unset secret names its location `at`."""
    if not isinstance(value, Secret):
        return value
    try:
        return value.reveal()
    except Mistake as mistake:
        mistake.at = mistake.at or at
        raise

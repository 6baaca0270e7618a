"""Refer to secrets by name, so that they can be passed around and printed without revealing their values."""

import os
from dataclasses import dataclass, field
from typing import TypeVar, cast, overload

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

    def carry_value(self, at: str | None = None) -> "Secret":
        """Return the same secret with its value, for a machine that lacks the variable; raises as `reveal` does."""
        return CarriedSecret(self.name, reveal_if_secret(self, at))


@dataclass(frozen=True, repr=False)
class CarriedSecret(Secret):
    """A secret that carries its value when it is pickled; its text does not show it.

    >>> CarriedSecret("PG_PASSWORD", "hunter2"), CarriedSecret("PG_PASSWORD", "hunter2").reveal()
    (secret(PG_PASSWORD), 'hunter2')
    """

    value: str = field(repr=False)

    def reveal(self) -> str:
        """Return the secret's value."""
        return self.value


Value = TypeVar("Value", bound=str | Secret | None)


def carry_if_secret(value: Value, at: str | None = None) -> Value:
    """Return a value; a secret with the value that it has on this machine."""
    return cast(Value, value.carry_value(at)) if isinstance(value, Secret) else value


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

"""What a task reaches, piece by piece: a function, a class, a value or a whole file, and what each reaches in turn.

Pure values; what they are made of is found by whoever fills them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from runnel.declare.model.source_location import Place
from runnel.plan.fingerprint.code.canonical_writer import SHORT


@dataclass(frozen=True)
class Part:
    """Something named that a fingerprint covers. `hash` is of itself alone, not of what it reaches.

    `statements` are lines with a short hash each, for code.
    """

    kind: str  # code, constant, value, default, parameter, option, checks, input
    name: str
    hash: str
    place: Place | None = None
    statements: tuple[tuple[int, str], ...] = ()
    shown: str | None = None


@dataclass(eq=False, slots=True)
class Unit:
    """One piece. It is filled when it is first reached, so that pieces may reach each other in circles."""

    label: str
    fill: "Callable[[Unit], None] | None" = None
    own: str = ""
    refs: "list[Unit]" = field(default_factory=list)
    parts: tuple[Part, ...] = ()
    opaque: tuple[str, ...] = ()
    annotations: str = ""
    unknown: tuple[str, ...] = ()  # kinds in a value that can't be looked into


def reached(roots: Iterable[Unit]) -> Iterator[tuple[Unit, list[int]]]:
    """Yield every piece within reach, each once, with the numbers of those that it refers to.

    Numbers count in the order of reaching, so neither addresses nor names of modules matter.
    """
    order = list(roots)
    numbers = {id(unit): number for number, unit in enumerate(order)}
    for unit in order:
        if unit.fill is not None:
            fill, unit.fill = unit.fill, None
            fill(unit)
        found = []
        for ref in unit.refs:
            number = numbers.get(id(ref))
            if number is None:
                number = numbers[id(ref)] = len(order)
                order.append(ref)
            found.append(number)
        yield unit, found


def digest(texts: Iterable[str]) -> str:
    """Return the hash that keys are made from."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def mark(text: str) -> str:
    """Return a short hash: good enough to find what changed."""
    return digest([text])[: 4 * SHORT]

"""What a task reaches, piece by piece: a function, a class, a value or a whole file, and what each reaches in turn.

Pure values; what they are made of is found by whoever fills them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.canonical_writer import SHORT_HASH_BYTES


@dataclass(frozen=True)
class FingerprintPart:
    """Something named that a fingerprint covers. `hash` is of itself alone, not of what it reaches.

    `statements` are lines with a short hash each, for code.
    """

    kind: str  # code, constant, value, default, parameter, option, checks, input
    name: str
    hash: str
    place: SourceLocation | None = None
    statements: tuple[tuple[int, str], ...] = ()
    display_text: str | None = None


@dataclass(eq=False, slots=True)
class CodeUnit:
    """One piece. It is filled when it is first reached, so that pieces may reach each other in circles."""

    label: str
    fill: "Callable[[CodeUnit], None] | None" = None
    own_text: str = ""
    refs: "list[CodeUnit]" = field(default_factory=list)
    parts: tuple[FingerprintPart, ...] = ()
    opaque: tuple[str, ...] = ()
    annotations: str = ""
    unknown: tuple[str, ...] = ()  # kinds in a value that can't be looked into


def iter_reached_units(roots: Iterable[CodeUnit]) -> Iterator[tuple[CodeUnit, list[int]]]:
    """Yield every piece within reach, each once, with the numbers of those that it refers to.

    Numbers count in the order of reaching, so neither addresses nor names of modules matter.
    """
    order = list(roots)
    numbers = {id(unit): number for number, unit in enumerate(order)}
    for unit in order:
        if unit.fill is not None:
            fill, unit.fill = unit.fill, None
            fill(unit)
        ref_numbers = []
        for ref in unit.refs:
            number = numbers.get(id(ref))
            if number is None:
                number = numbers[id(ref)] = len(order)
                order.append(ref)
            ref_numbers.append(number)
        yield unit, ref_numbers


def hash_texts(texts: Iterable[str]) -> str:
    """Return the hash that keys are made from."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def short_hash(text: str) -> str:
    """Return a short hash: good enough to find what changed."""
    return hash_texts([text])[: 4 * SHORT_HASH_BYTES]

"""Define code units, which a task's fingerprint covers: functions, classes, values, whole files, and their references.

Pure values; other modules fill them.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.canonical_writer import SHORT_HASH_BYTES


@dataclass(frozen=True)
class FingerprintPart:
    """A named part of a fingerprint. `hash` covers only the part itself, not what it refers to.

    For code, `statements` are line numbers with a short hash each.
    """

    kind: str  # code, constant, value, default, parameter, option, checks, input
    name: str
    hash: str
    place: SourceLocation | None = None
    statements: tuple[tuple[int, str], ...] = ()
    display_text: str | None = None


@dataclass(eq=False, slots=True)
class CodeUnit:
    """A function, class, value or file. It is filled when first reached, so that units may refer to each other."""

    label: str
    fill: "Callable[[CodeUnit], None] | None" = None
    own_text: str = ""
    refs: "list[CodeUnit]" = field(default_factory=list)
    parts: tuple[FingerprintPart, ...] = ()
    opaque: tuple[str, ...] = ()
    annotations: str = ""
    unknown: tuple[str, ...] = ()  # types in a value that can't be inspected


def iter_reached_units(roots: Iterable[CodeUnit]) -> Iterator[tuple[CodeUnit, list[int]]]:
    """Yield every unit reachable from the roots, each once, with the numbers of the units that it refers to.

    Units are numbered in the order in which they are reached, so memory addresses and module names don't matter.
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
    """Hash texts into the digest that keys are made from."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def short_hash(text: str) -> str:
    """Return a short hash, sufficient to find what changed."""
    return hash_texts([text])[: 4 * SHORT_HASH_BYTES]

"""Describe for people what changed between two fingerprints. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from runnel.plan.fingerprint.code.canonical_writer import SHORT_HASH_BYTES
from runnel.plan.fingerprint.code.code_unit import FingerprintPart
from runnel.plan.fingerprint.fingerprints import FORMAT_VERSION, Fingerprint

_ORDER = ("input", "code", "constant", "value", "default", "parameter", "option", "checks", "setting")
_StoredParts = dict[tuple[str, str], list[Sequence[str]]]


def describe_difference(before: Mapping[str, Any], after: Fingerprint) -> str | None:
    """Describe the first change, or return None if nothing changed. `before` is the stored earlier fingerprint."""
    if before.get("digest") == after.digest:
        return None
    if before.get("form") != FORMAT_VERSION:
        return "another version of Runnel made it"
    old: _StoredParts = {}
    for kind, name, *stored_fields in before.get("parts", ()):
        old.setdefault((kind, name), []).append(stored_fields)
    inputs = _describe_input_changes(old, after.parts)
    if inputs:
        return f"its inputs changed: {inputs}"
    changed = sorted(_iter_changed_parts(old, after.parts), key=lambda pair: _ORDER.index(pair[0].kind))
    for part, stored in changed:
        return _describe_part(part, stored)
    return _describe_removed_part(old, after.parts) or _describe_structure_change(after.parts)


def _iter_changed_parts(
    old: _StoredParts, parts: Sequence[FingerprintPart]
) -> Iterator[tuple[FingerprintPart, Sequence[str] | None]]:
    """Yield each part that is new or different, with its stored fields. Parts of equal names are matched in order."""
    seen: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.kind, part.name)
        number = seen[key] = seen.get(key, -1) + 1
        stored_parts = old.get(key, [])
        stored = stored_parts[number] if number < len(stored_parts) else None
        if stored is None or stored[0] != part.hash:
            yield part, stored


def _describe_part(part: FingerprintPart, stored: Sequence[str] | None) -> str:
    name = part.name.rpartition(":")[2]
    if part.kind == "code":
        return f"its code changed at {_find_changed_line(part, stored)}"
    if part.kind == "constant":
        return f"the constant `{name}` that it uses changed at {part.place}"
    if part.kind == "value":
        return f"the value `{name}` that it closes over changed at {part.place}"
    if part.kind == "default":
        return f"the default of `{name}` changed at {part.place}"
    if part.kind == "parameter":
        if part.display_text is None or stored is None or len(stored) < 2:
            return f"its parameter `{name}` " + ("is new" if stored is None else "changed")
        return f"its parameter `{name}` is {part.display_text}, was {stored[1]}"
    if part.kind == "setting":
        before = f", was {stored[1]}" if stored is not None and len(stored) > 1 else ""
        return f"the Spark setting `{part.name}` is {part.display_text or 'another'}{before}"
    return "its checks changed" if part.kind == "checks" else f"its option `{name}` changed"


def _find_changed_line(part: FingerprintPart, stored: Sequence[str] | None) -> str:
    """Return the line of the first statement that differs, or of the last one if later statements were removed."""
    if part.place is None or stored is None or len(stored) < 2 or not part.statements:
        return str(part.place)
    width = 2 * SHORT_HASH_BYTES
    earlier = [stored[1][at : at + width] for at in range(0, len(stored[1]), width)]
    line = part.statements[-1][0]
    for current, previous in zip_longest(part.statements, earlier):
        if current is not None and current[1] != previous:
            line = current[0]
            break
    return f"{part.place.file}:{line}"


def _describe_input_changes(old: _StoredParts, parts: Sequence[FingerprintPart]) -> str:
    current = {part.name: part.display_text for part in parts if part.kind == "input"}
    previous = {name: rows[0][1] for (kind, name), rows in old.items() if kind == "input"}
    added = sorted(str(table) for table in set(current.values()) - set(previous.values()))
    removed = sorted(str(table) for table in set(previous.values()) - set(current.values()))
    rebound = [name for name in current if name in previous and current[name] != previous[name]]
    phrases = [f"now also reads {', '.join(added)}"] if added else []
    phrases += [f"no longer reads {', '.join(removed)}"] if removed else []
    if not phrases and rebound:
        phrases = [f"`{rebound[0]}` is {current[rebound[0]]}, was {previous[rebound[0]]}"]
    return ", ".join(phrases)


def _describe_structure_change(parts: Sequence[FingerprintPart]) -> str:
    """Describe a change in how the parts refer to each other, if no part has changed."""
    place = next((part.place for part in parts if part.kind == "code"), None)
    return f"its code changed at {place}" if place else "its code changed"


def _describe_removed_part(old: _StoredParts, parts: Sequence[FingerprintPart]) -> str | None:
    current_keys = {(part.kind, part.name) for part in parts}
    for kind, name in sorted(old.keys() - current_keys, key=lambda key: (_ORDER.index(key[0]), key[1])):
        last = name.rpartition(":")[2]
        if kind == "setting":
            return f"the Spark setting `{name}` is no longer there"
        if kind in ("option", "parameter"):
            return f"its {kind} `{last}` {'changed' if kind == 'option' else 'is gone'}"
        return "its checks changed" if kind == "checks" else f"it no longer uses `{last}`"
    return None

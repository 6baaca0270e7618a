"""Say what changed between two fingerprints, so that a person understands it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from runnel.plan.fingerprint.code.canonical_writer import SHORT
from runnel.plan.fingerprint.code.code_unit import Part
from runnel.plan.fingerprint.fingerprints import FORM, Fingerprint

_ORDER = ("input", "code", "constant", "value", "default", "parameter", "option", "checks", "setting")
_Stored = dict[tuple[str, str], list[Sequence[str]]]


def difference(before: Mapping[str, Any], after: Fingerprint) -> str | None:
    """Return the first thing that changed, or None where nothing did. `before` is what an earlier one stored."""
    if before.get("digest") == after.digest:
        return None
    if before.get("form") != FORM:
        return "another version of Runnel made it"
    old: _Stored = {}
    for kind, name, *rest in before.get("parts", ()):
        old.setdefault((kind, name), []).append(rest)
    inputs = _inputs(old, after.parts)
    if inputs:
        return f"its inputs changed: {inputs}"
    changed = sorted(_changed(old, after.parts), key=lambda pair: _ORDER.index(pair[0].kind))
    for part, was in changed:
        return _told(part, was)
    return _gone(old, after.parts) or _somewhere(after.parts)


def _changed(old: _Stored, parts: Sequence[Part]) -> Iterator[tuple[Part, Sequence[str] | None]]:
    """Yield each part that is new or different, with what was stored of it. Equal names are matched in order."""
    seen: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (part.kind, part.name)
        number = seen[key] = seen.get(key, -1) + 1
        known = old.get(key, [])
        was = known[number] if number < len(known) else None
        if was is None or was[0] != part.hash:
            yield part, was


def _told(part: Part, was: Sequence[str] | None) -> str:
    name = part.name.rpartition(":")[2]
    if part.kind == "code":
        return f"its code changed at {_place(part, was)}"
    if part.kind == "constant":
        return f"the constant `{name}` that it uses changed at {part.place}"
    if part.kind == "value":
        return f"the value `{name}` that it closes over changed at {part.place}"
    if part.kind == "default":
        return f"the default of `{name}` changed at {part.place}"
    if part.kind == "parameter":
        if part.shown is None or was is None or len(was) < 2:
            return f"its parameter `{name}` " + ("is new" if was is None else "changed")
        return f"its parameter `{name}` is {part.shown}, was {was[1]}"
    if part.kind == "setting":
        before = f", was {was[1]}" if was is not None and len(was) > 1 else ""
        return f"the Spark setting `{part.name}` is {part.shown or 'another'}{before}"
    return "its checks changed" if part.kind == "checks" else f"its option `{name}` changed"


def _place(part: Part, was: Sequence[str] | None) -> str:
    """Return the first statement that differs; the last one where statements after it went."""
    if part.place is None or was is None or len(was) < 2 or not part.statements:
        return str(part.place)
    width = 2 * SHORT
    earlier = [was[1][at : at + width] for at in range(0, len(was[1]), width)]
    line = part.statements[-1][0]
    for now, then in zip_longest(part.statements, earlier):
        if now is not None and now[1] != then:
            line = now[0]
            break
    return f"{part.place.file}:{line}"


def _inputs(old: _Stored, parts: Sequence[Part]) -> str:
    now = {part.name: part.shown for part in parts if part.kind == "input"}
    then = {name: rows[0][1] for (kind, name), rows in old.items() if kind == "input"}
    more = sorted(str(table) for table in set(now.values()) - set(then.values()))
    less = sorted(str(table) for table in set(then.values()) - set(now.values()))
    moved = [name for name in now if name in then and now[name] != then[name]]
    told = [f"now also reads {', '.join(more)}"] if more else []
    told += [f"no longer reads {', '.join(less)}"] if less else []
    if not told and moved:
        told = [f"`{moved[0]}` is {now[moved[0]]}, was {then[moved[0]]}"]
    return ", ".join(told)


def _somewhere(parts: Sequence[Part]) -> str:
    """Return what to say where every part is as it was, but not how they hang together."""
    place = next((part.place for part in parts if part.kind == "code"), None)
    return f"its code changed at {place}" if place else "its code changed"


def _gone(old: _Stored, parts: Sequence[Part]) -> str | None:
    left = {(part.kind, part.name) for part in parts}
    for kind, name in sorted(old.keys() - left, key=lambda key: (_ORDER.index(key[0]), key[1])):
        last = name.rpartition(":")[2]
        if kind == "setting":
            return f"the Spark setting `{name}` is no longer there"
        if kind in ("option", "parameter"):
            return f"its {kind} `{last}` {'changed' if kind == 'option' else 'is gone'}"
        return "its checks changed" if kind == "checks" else f"it no longer uses `{last}`"
    return None

"""The one tree of errors that users see.

Every error keeps its parts as attributes, so that the command line, REST and the console show the same thing.
Imports nothing.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence


class RunnelError(Exception):
    """A mistake or failure, told so that its reader knows what to do.

    `code` is stable; scripts rely on it. `exit_code` is what the command line ends with.
    """

    exit_code = 1

    def __init__(self, code: str, what: str, *, at: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.at = at
        self.fix = fix

    def __str__(self) -> str:
        """Return the text that a user reads."""
        lines = [f"{self.code}: {self.what}"]
        if self.at:
            lines.append(f"  at {self.at}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a stack trace."""
        return str(self).splitlines()

    def parts(self) -> dict[str, str | None]:
        """Return the error as the JSON object that scripts rely on, without its envelope."""
        return {"code": self.code, "what": self.what, "at": self.at, "fix": self.fix}

    def told(self) -> dict[str, str | int | None]:
        """Return the error with its kind, so that another process can raise the same; see `error_of`."""
        kind = next(one.__name__ for one in type(self).__mro__ if not one.__name__.startswith("_"))
        return {**self.parts(), "kind": kind, "exit_code": self.exit_code}


class Mistake(RunnelError):
    """Something that was typed or declared is wrong; trying again unchanged fails again."""

    exit_code = 2


class Conflict(RunnelError):
    """Two writers changed the same thing, and nothing but a person can decide."""


class Moved(RunnelError):
    """A table is no longer at the version that a write started from; plan again on the new base."""

    def __init__(self, branch: str, tables: Sequence[str]) -> None:
        super().__init__(
            "PUBLISH_MOVED",
            f"{listed(tables)} moved on branch `{branch}` while this write was under way",
            fix="run it again: it starts from the new version",
        )
        self.branch = branch
        self.tables = tuple(tables)


class Broken(RunnelError):
    """Stored data is not what its metadata promises."""


class Unreachable(RunnelError):
    """A system that is needed does not answer, or it is unknown whether it did what was asked."""

    exit_code = 3
    is_tried = False  # whether it was asked again already, as often as is worth it


class NoRoom(Unreachable):
    """A disk is full. What was begun is not published, and goes well once there is room."""

    exit_code = 1


class Cancelled(RunnelError):
    """The user stopped it."""

    exit_code = 130

    def __init__(self, what: str = "cancelled; nothing was published") -> None:
        super().__init__("CANCELLED", what)


def error_of(found: Mapping[str, object] | None) -> RunnelError:
    """Return an error that another process has told.

    >>> error_of(Mistake("NAME_TAG", "no").told())
    Mistake('no')
    """
    if found is None:
        return RunnelError("RUN_LOST", "nobody said how the run ended", fix="run it again")
    kinds: dict[object, type[RunnelError]] = {kind.__name__: kind for kind in _kinds(RunnelError)}
    by_exit_code: dict[object, type[RunnelError]] = {one.exit_code: one for one in (Mistake, Unreachable, Cancelled)}
    kind = kinds.get(found.get("kind")) or by_exit_code.get(found.get("exit_code"), RunnelError)
    while kind.__str__ is not RunnelError.__str__:  # its text is made of more than is told
        kind = next(one for one in kind.__mro__[1:] if issubclass(one, RunnelError))
    error = kind.__new__(kind, str(found["what"]))
    at, fix = (None if found.get(name) is None else str(found[name]) for name in ("at", "fix"))
    RunnelError.__init__(error, str(found["code"]), str(found["what"]), at=at, fix=fix)
    return error


def _kinds(kind: type[RunnelError]) -> Iterator[type[RunnelError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


_FULL = ("No space left on device", "database or disk is full")


def no_room(error: BaseException) -> NoRoom | None:
    """Return what to tell where an error comes of a full disk, whoever met it; else None.

    >>> no_room(OSError(errno.ENOSPC, "No space left on device")).code
    'DISK_FULL'
    >>> no_room(ValueError("no")) is None
    True
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, NoRoom):
            return one
        is_full = isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or any(sign in str(one) for sign in _FULL):
            what = "no space left on device; nothing was published"
            return NoRoom("DISK_FULL", what, fix="free some space, then repeat")
        seen.add(id(one))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return None


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return names as a phrase.

    >>> listed(["b", "a"])
    '`b` and `a`'
    >>> listed("abcdefg", most=3)
    '`a`, `b`, `c` and 4 more'
    """
    shown = [f"`{name}`" for name in names]
    if len(shown) > most:
        return ", ".join(shown[:most]) + f" and {len(shown) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that someone who typed `name` most likely meant, or None.

    >>> nearest("ods.ordres", ["ods.orders", "dws.seller_day"])
    'ods.orders'
    >>> nearest("orders", ["ods.orders", "dws.seller_day"])
    'ods.orders'
    >>> nearest("zzz", ["ods.orders"]) is None
    True
    """
    from difflib import get_close_matches

    choices = list(known)
    close = get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return close[0]
    last_parts = {choice.rpartition(".")[2]: choice for choice in choices}
    close = get_close_matches(name.rpartition(".")[2], last_parts, n=1, cutoff=0.75)
    return last_parts[close[0]] if close else None

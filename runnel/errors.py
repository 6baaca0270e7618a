"""Define all errors that users see, in one class hierarchy.

Every error keeps its parts as attributes, so that the command line, REST and the console show the same text.
Imports nothing.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence


class RunnelError(Exception):
    """A mistake or failure, described so that the reader knows what to do.

    `code` is stable; scripts rely on it. The command line exits with `exit_code`.
    """

    exit_code = 1

    def __init__(self, code: str, what: str, *, at: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.at = at
        self.fix = fix
        self.others: tuple[RunnelError, ...] = ()

    def __str__(self) -> str:
        """Return the text that a user reads."""
        lines = [f"{self.code}: {self.what}"]
        if self.at:
            lines.append(f"  at {self.at}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join([*lines, *(str(other) for other in self.others)])

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a stack trace."""
        return str(self).splitlines()

    def to_json(self) -> dict[str, str | None]:
        """Return the error as the JSON object that scripts rely on, without its envelope."""
        return {"code": self.code, "what": self.what, "at": self.at, "fix": self.fix}

    def to_json_with_kind(self) -> dict[str, str | int | None]:
        """Return the error as JSON with its class, so that another process can raise it; see `error_from_json`."""
        kind = next(base.__name__ for base in type(self).__mro__ if not base.__name__.startswith("_"))
        return {**self.to_json(), "kind": kind, "exit_code": self.exit_code}


class Mistake(RunnelError):
    """The user typed or declared something wrong; an unchanged retry fails again."""

    exit_code = 2


class Conflict(RunnelError):
    """Two writers changed the same thing, and only a person can resolve it."""


class VersionConflict(RunnelError):
    """A table is no longer at the version that a write started from; plan again on the new base."""

    def __init__(self, branch: str, tables: Sequence[str]) -> None:
        super().__init__(
            "PUBLISH_MOVED",
            f"{join_names(tables)} moved on branch `{branch}` while this write was running",
            fix="run it again: it starts from the new version",
        )
        self.branch = branch
        self.tables = tuple(tables)


class CorruptData(RunnelError):
    """Stored data does not match its metadata."""


class Unreachable(RunnelError):
    """A required system does not answer, or it is unknown whether it carried out the request."""

    exit_code = 3
    was_retried = False  # whether the request was already retried as often as is useful


class NoRoom(Unreachable):
    """A disk is full. Nothing was published; the same command works once there is space."""

    exit_code = 1


class Cancelled(RunnelError):
    """The user cancelled the command or run."""

    exit_code = 130

    def __init__(self, what: str = "cancelled; nothing was published") -> None:
        super().__init__("CANCELLED", what)


def raise_all(errors: "Sequence[RunnelError]") -> None:
    """Raise the first of several errors, which shows the others too; do nothing if there is none."""
    if errors:
        first_error, *others = errors
        first_error.others = tuple(others)
        raise first_error


def error_from_json(fields: Mapping[str, object] | None) -> RunnelError:
    """Return an error that another process has reported.

    >>> error_from_json(Mistake("NAME_TAG", "no").to_json_with_kind())
    Mistake('no')
    """
    if fields is None:
        return RunnelError("RUN_LOST", "the run ended without a result", fix="run it again")
    kinds: dict[object, type[RunnelError]] = {kind.__name__: kind for kind in _walk_subclasses(RunnelError)}
    by_exit_code: dict[object, type[RunnelError]] = {
        error_type.exit_code: error_type for error_type in (Mistake, Unreachable, Cancelled)
    }
    kind = kinds.get(fields.get("kind")) or by_exit_code.get(fields.get("exit_code"), RunnelError)
    while kind.__str__ is not RunnelError.__str__:  # the JSON lacks the parts that its text needs
        kind = next(error_type for error_type in kind.__mro__[1:] if issubclass(error_type, RunnelError))
    error = kind.__new__(kind, str(fields["what"]))
    at, fix = (None if fields.get(name) is None else str(fields[name]) for name in ("at", "fix"))
    RunnelError.__init__(error, str(fields["code"]), str(fields["what"]), at=at, fix=fix)
    return error


def _walk_subclasses(kind: type[RunnelError]) -> Iterator[type[RunnelError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _walk_subclasses(subclass)


_DISK_FULL_PHRASES = ("No space left on device", "database or disk is full")


def find_disk_full(error: BaseException) -> NoRoom | None:
    """Return the error to raise if a full disk caused `error`, else None.

    >>> find_disk_full(OSError(errno.ENOSPC, "No space left on device")).code
    'DISK_FULL'
    >>> find_disk_full(ValueError("no")) is None
    True
    """
    visited_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited_ids:
        if isinstance(cause, NoRoom):
            return cause
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or any(phrase in str(cause) for phrase in _DISK_FULL_PHRASES):
            what = "no space left on device; nothing was published"
            return NoRoom("DISK_FULL", what, fix="free some space, then run it again")
        visited_ids.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def join_names(names: Iterable[str], max_names: int = 5) -> str:
    """Return names as a phrase.

    >>> join_names(["b", "a"])
    '`b` and `a`'
    >>> join_names("abcdefg", max_names=3)
    '`a`, `b`, `c` and 4 more'
    """
    quoted = [f"`{name}`" for name in names]
    if len(quoted) > max_names:
        return ", ".join(quoted[:max_names]) + f" and {len(quoted) - max_names} more"
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def find_nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the known name that someone who typed `name` most likely meant, or None.

    >>> find_nearest("ods.ordres", ["ods.orders", "dws.seller_day"])
    'ods.orders'
    >>> find_nearest("orders", ["ods.orders", "dws.seller_day"])
    'ods.orders'
    >>> find_nearest("zzz", ["ods.orders"]) is None
    True
    """
    from difflib import get_close_matches

    choices = list(candidates)
    close = get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return close[0]
    last_parts = {choice.rpartition(".")[2]: choice for choice in choices}
    close = get_close_matches(name.rpartition(".")[2], last_parts, n=1, cutoff=0.75)
    return last_parts[close[0]] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error's text that names the nearest of the known names; empty if none is near.

    >>> "there is no table `ods.ordres`" + did_you_mean("ods.ordres", ["ods.orders"])
    'there is no table `ods.ordres`; close: `ods.orders`'
    """
    return close_hint(find_nearest(name, candidates))


def close_hint(near_miss: str | None) -> str:
    """Return the end of an error's text that names a near miss, if there is one.

    >>> close_hint("ods.orders"), close_hint(None)
    ('; close: `ods.orders`', '')
    """
    return f"; close: `{near_miss}`" if near_miss else ""


def plural(number: int, noun: str) -> str:
    """Return a number with a noun, for people.

    >>> plural(1204, "row"), plural(1, "new event")
    ('1,204 rows', '1 new event')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

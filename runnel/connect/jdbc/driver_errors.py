"""Turn what a database's driver raises into what a user is told. No password is ever part of it."""

from collections.abc import Sequence

from runnel.connect.jdbc.url import Address
from runnel.errors import Mistake, RunnelError, Unreachable, nearest

_CUT = 300


def unreachable(address: Address, error: BaseException, at: str) -> Unreachable:
    """Return that nothing answers."""
    what = f"{address.called} at {address} does not answer: {first_line(address, error)}"
    fix = "look whether it runs, and whether this machine may reach it; then run again"
    return Unreachable("SOURCE_UNREACHABLE", what, at=at, fix=fix)


def refused(address: Address, error: BaseException, at: str) -> RunnelError:
    """Return that it lets nobody in by these names."""
    who = f" for the user `{address.user}`" if address.user else ""
    what = f"{address.called} at {address} refuses the login{who}: {first_line(address, error)}"
    fix = 'correct user= and password=rn.secret("..."), or the variable that holds the secret'
    return RunnelError("SOURCE_LOGIN", what, at=at, fix=fix)


def no_database(address: Address, at: str, names: Sequence[str] = ()) -> Mistake:
    """Return that there is no such database."""
    close = nearest(address.database, names)
    what = f"there is no database `{address.database}` at {address}" + (f"; close: `{close}`" if close else "")
    return Mistake("SOURCE_NO_DATABASE", what, at=at, fix="correct the end of the url")


def no_table(address: Address, table: str, names: Sequence[str], at: str) -> Mistake:
    """Return that there is no such table, or none that may be read."""
    close = nearest(table, names)
    what = f"there is no table `{table}` in {address}" + (f"; close: `{close}`" if close else "")
    fix = f'write table="{close}"' if close else "correct table=, or let the user read it"
    return Mistake("SOURCE_NO_TABLE", what, at=at, fix=fix)


def wrong_query(address: Address, error: BaseException, at: str) -> Mistake:
    """Return that the database does not accept what was asked."""
    what = f"{address.called} at {address} can't run the query: {first_line(address, error)}"
    return Mistake("SOURCE_QUERY", what, at=at, fix="correct query=; try it in the database's own client")


def failed(address: Address, error: BaseException, at: str) -> RunnelError:
    """Return that the database failed at what it was asked."""
    what = f"{address.called} at {address} failed: {first_line(address, error)}"
    return RunnelError("SOURCE_DATABASE", what, at=at, fix="look into the database's log; then run again")


def first_line(address: Address, error: BaseException) -> str:
    r"""Return the line of a driver's error that says what is wrong.

    >>> first_line(Address("mysql", "h", 1, "d", password="s3"), ValueError("no s3 here\nand more"))
    'no *** here'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return address.hide(lines[0] if lines else type(error).__name__)[:_CUT]

"""Turn exceptions of database drivers into errors for users. They never contain a password."""

from collections.abc import Sequence

from runnel.connect.jdbc.url import DatabaseAddress
from runnel.connection_failure import ServerAddress, describe_unreachable, find_cause
from runnel.errors import Mistake, RunnelError, Unreachable, close_hint, did_you_mean, find_nearest

_MAX_MESSAGE_LENGTH = 300


def unreachable(address: DatabaseAddress, error: BaseException, at: str) -> Unreachable:
    """Return the error of a database that does not answer."""
    reason, fix = explain_failure(address, error)
    what = f"{address.product_name} at {address} does not answer: {reason}"
    return Unreachable("SOURCE_UNREACHABLE", what, at=at, fix=f"{fix}; then run again")


def explain_failure(address: DatabaseAddress, error: BaseException) -> tuple[str, str]:
    """Return why a database does not answer, and what to check: a wrong host, a wrong port, or another reason."""
    cause, server = find_cause(str(error)), ServerAddress(address.host, address.port)
    check = "check that it is running and that this machine can reach it"
    return describe_unreachable(cause, server) or (first_error_line(address, error), check)


def login_refused(address: DatabaseAddress, error: BaseException, at: str) -> RunnelError:
    """Return the error of a database that refuses the login."""
    user_text = f" for the user `{address.user}`" if address.user else ""
    what = f"{address.product_name} at {address} refuses the login{user_text}: {first_error_line(address, error)}"
    fix = 'correct user= and password=rn.secret("..."), or the variable that holds the secret'
    return RunnelError("SOURCE_LOGIN", what, at=at, fix=fix)


def no_database(address: DatabaseAddress, at: str, names: Sequence[str] = ()) -> Mistake:
    """Return the error of a database that does not exist."""
    what = f"there is no database `{address.database}` at {address}" + did_you_mean(address.database, names)
    return Mistake("SOURCE_NO_DATABASE", what, at=at, fix="correct the end of the url")


def no_table(address: DatabaseAddress, table: str, names: Sequence[str], at: str) -> Mistake:
    """Return the error of a table that does not exist or may not be read."""
    close = find_nearest(table, names)
    what = f"there is no table `{table}` in {address}" + close_hint(close)
    fix = f'write table="{close}"' if close else "correct table=, or let the user read it"
    return Mistake("SOURCE_NO_TABLE", what, at=at, fix=fix)


def wrong_query(address: DatabaseAddress, error: BaseException, at: str) -> Mistake:
    """Return the error of a query that the database does not accept."""
    what = f"{address.product_name} at {address} can't run the query: {first_error_line(address, error)}"
    return Mistake("SOURCE_QUERY", what, at=at, fix="correct query=; try it in the database's own client")


def failed(address: DatabaseAddress, error: BaseException, at: str) -> RunnelError:
    """Return the error of a query that failed in the database."""
    what = f"{address.product_name} at {address} failed: {first_error_line(address, error)}"
    return RunnelError("SOURCE_DATABASE", what, at=at, fix="read the database's log; then run again")


def first_error_line(address: DatabaseAddress, error: BaseException) -> str:
    r"""Return the first line of a driver's error, without the password.

    >>> first_error_line(DatabaseAddress("mysql", "h", 1, "d", password="s3"), ValueError("no s3 here\nand more"))
    'no *** here'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return address.hide_password(lines[0] if lines else type(error).__name__)[:_MAX_MESSAGE_LENGTH]

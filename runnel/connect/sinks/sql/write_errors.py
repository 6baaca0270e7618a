"""Turn exceptions of database drivers while writing into errors for users. They never contain a password."""

from runnel.connect.jdbc.driver_errors import explain_failure, first_error_line
from runnel.connect.jdbc.url import DatabaseAddress
from runnel.errors import Mistake, RunnelError, Unreachable

REFUSED = "SINK_REFUSED"


def unreachable(address: DatabaseAddress, error: BaseException, at: str) -> Unreachable:
    """Return the error of a database that does not answer or lost the connection."""
    reason, fix = explain_failure(address, error)
    what = f"{address.product_name} at {address} does not answer: {reason}"
    return Unreachable("SINK_UNREACHABLE", what, at=at, fix=f"{fix}; the next run continues")


def refused(address: DatabaseAddress, error: BaseException, at: str) -> RunnelError:
    """Return the error of a database that refuses the login or lacks a permission for the user."""
    what = f"{address.product_name} at {address} refuses the user: {first_error_line(address, error)}"
    fix = 'correct user= and password=rn.secret("..."), or let the user create and change tables there'
    return RunnelError(REFUSED, what, at=at, fix=fix)


def no_key(address: DatabaseAddress, table: str, key: str, at: str) -> Mistake:
    """Return the error of a table without a unique index on the sink's key."""
    what = f"`{table}` at {address} has no primary key and no unique index on ({key}), so rows can't be upserted"
    return Mistake("SINK_KEY", what, at=at, fix=f"CREATE UNIQUE INDEX ... ON {table} ({key})")


class RowsRejected(RunnelError):
    """The database rejects the rows. `sql_state` is its SQLSTATE, if it has one."""

    def __init__(self, address: DatabaseAddress, error: BaseException, at: str, sql_state: str = "") -> None:
        what = f"{address.product_name} at {address} does not accept the rows: {first_error_line(address, error)}"
        fix = "correct the table there, or drop it and let Runnel create it; the next run continues"
        super().__init__("SINK_DATABASE", what, at=at, fix=fix)
        self.sql_state = sql_state

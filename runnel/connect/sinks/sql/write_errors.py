"""Turn what a database says while it is written to into what a user is told. No password is ever part of it."""

from runnel.connect.jdbc.driver_errors import first_line
from runnel.connect.jdbc.url import Address
from runnel.errors import Mistake, RunnelError, Unreachable


def unreachable(address: Address, error: BaseException, at: str) -> Unreachable:
    """Return that nothing answers, or that it broke off."""
    what = f"{address.called} at {address} does not answer: {first_line(address, error)}"
    fix = "look whether it runs, and whether this machine may reach it; the next run goes on"
    return Unreachable("SINK_UNREACHABLE", what, at=at, fix=fix)


def refused(address: Address, error: BaseException, at: str) -> RunnelError:
    """Return that it does not let this user in, or not do what is needed."""
    what = f"{address.called} at {address} refuses the user: {first_line(address, error)}"
    fix = 'correct user= and password=rn.secret("..."), or let the user create and change tables there'
    return RunnelError("SINK_REFUSED", what, at=at, fix=fix)


def no_key(address: Address, table: str, key: str, at: str) -> Mistake:
    """Return that the table's key is none of the database's."""
    what = f"`{table}` at {address} has no primary key and no unique index on ({key}), so rows can't be upserted"
    return Mistake("SINK_KEY", what, at=at, fix=f"CREATE UNIQUE INDEX ... ON {table} ({key})")


class NotAccepted(RunnelError):
    """The database does not take the rows. `state` is what it calls the reason."""

    def __init__(self, address: Address, error: BaseException, at: str, state: str = "") -> None:
        what = f"{address.called} at {address} does not take the rows: {first_line(address, error)}"
        fix = "correct the table there, or drop it and let Runnel make it; the next run goes on"
        super().__init__("SINK_DATABASE", what, at=at, fix=fix)
        self.state = state

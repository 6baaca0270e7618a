"""Rows that were set aside: of which tables, and which they are."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import QUARANTINE, quarantine_of
from runnel.errors import Mistake, nearest
from runnel.project.execution.release import named

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.load.quarantine import Aside


@dataclass(frozen=True)
class Quarantined:
    """A table of which rows are set aside, how many, and the table that holds them."""

    table: str
    rows: int | None
    quarantine: str

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return asdict(self)


def quarantines(lake: "Lake", branch: str = "main") -> list[Quarantined]:
    """Return the tables of which rows are set aside on a branch."""
    from runnel.lake.diff.change_size import size
    from runnel.lake.iceberg import table_properties
    from runnel.lake.iceberg.table_metadata import load

    store, found = lake.store, []
    for name, version in store.state(branch).items():
        rows = size(store, version.location).rows if name.layer == QUARANTINE else 0
        if rows:
            of = load(store, version.location).properties.get(table_properties.QUARANTINE_OF, "")
            found.append(Quarantined(of, rows, str(name)))
    return found


def rows_aside(lake: "Lake", table: str, branch: str = "main", file: str | None = None) -> "list[Aside]":
    """Return the rows of a table that are set aside, the oldest first; who asks may name its quarantine table."""
    from runnel.connect.load.quarantine import held

    state, of = lake.store.state(branch), named(lake, table, branch)
    if of not in state and quarantine_of(of) not in state:
        close = nearest(str(of), [str(name) for name in state])
        what = f"there is no table `{of}` on branch `{branch}`" + (f"; close: `{close}`" if close else "")
        raise Mistake("QUARANTINE_UNKNOWN", what, fix="`runnel quarantine` lists what is set aside")
    return held(lake.store, of, branch, file)


def aside_json(row: "Aside") -> dict[str, Any]:
    """Return a row that is set aside."""
    at = row.at.isoformat() if row.at else None
    return {"raw": row.raw, "reason": row.reason, "file": row.file, "run": row.run, "at": at}

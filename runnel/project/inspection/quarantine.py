"""List the tables that have quarantined rows, and read these rows."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import QUARANTINE_LAYER, quarantine_table_of
from runnel.errors import Mistake, did_you_mean
from runnel.project.execution.release import resolve_table

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.load.quarantined_row import QuarantinedRow


@dataclass(frozen=True)
class QuarantineSummary:
    """A table that has quarantined rows, how many, and its quarantine table."""

    table: str
    rows: int | None
    quarantine: str

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return asdict(self)


def list_quarantines(lake: "Lake", branch: str = "main") -> list[QuarantineSummary]:
    """Return the tables that have quarantined rows on a branch."""
    from runnel.lake.diff.change_size import read_table_size
    from runnel.lake.iceberg import table_properties
    from runnel.lake.iceberg.table_metadata import load_metadata

    store, summaries = lake.store, []
    for name, version in store.state(branch).items():
        rows = read_table_size(store, version.location).rows if name.layer == QUARANTINE_LAYER else 0
        if rows:
            source_table = load_metadata(store, version.location).properties.get(table_properties.QUARANTINE_OF, "")
            summaries.append(QuarantineSummary(source_table, rows, str(name)))
    return summaries


def read_quarantined_rows(
    lake: "Lake", table: str, branch: str = "main", file: str | None = None
) -> "list[QuarantinedRow]":
    """Return the quarantined rows of a table, the oldest first; `table` may also be the quarantine table."""
    from runnel.connect.load.quarantine import read_quarantined_rows

    state, table_name = lake.store.state(branch), resolve_table(lake, table, branch)
    if table_name not in state and quarantine_table_of(table_name) not in state:
        what = f"there is no table `{table_name}` on branch `{branch}`" + did_you_mean(
            str(table_name), [str(name) for name in state]
        )
        raise Mistake("QUARANTINE_UNKNOWN", what, fix="`runnel quarantine` lists what is set aside")
    return read_quarantined_rows(lake.store, table_name, branch, file)


def quarantined_row_json(row: "QuarantinedRow") -> dict[str, Any]:
    """Return a quarantined row as JSON."""
    quarantined_at = row.at.isoformat() if row.at else None
    return {
        "raw": row.raw,
        "reason": row.reason,
        "cause": row.cause,
        "file": row.file,
        "position": row.position,
        "run": row.run,
        "at": quarantined_at,
    }

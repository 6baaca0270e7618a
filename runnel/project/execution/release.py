"""Release quarantined rows of a source; the quarantined rows of a task can't be released."""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.declare.model.flow import QUARANTINE_LAYER, Source, quarantine_table_of
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.release import ReleaseResult


def release(
    lake: "Lake", table: str, corrected: Path | None = None, *, file: str | None = None, branch: str = "main"
) -> "ReleaseResult":
    """Ingest the quarantined rows of a source again; only those of `file` if it is given."""
    from runnel.connect.ingest.release import release_rows as send
    from runnel.connect.load.quarantine import read_quarantined_rows

    source = _find_source(lake, resolve_table(lake, table, branch))
    quarantined_rows = read_quarantined_rows(lake.store, source.table, branch, file)
    selected_rows = [row for row in quarantined_rows if row.raw is not None]  # None: the whole file could not be read
    if not selected_rows:
        of_file = f" of {file}" if file else ""
        what = f"no row{of_file} of `{source.table}` is set aside on branch `{branch}`"
        raise Mistake("RELEASE_NOTHING", what, fix=f"runnel quarantine {source.table} shows them")
    return send(lake.store, source, lake.settings.root, selected_rows, corrected, branch=branch)


def resolve_table(lake: "Lake", table: str, branch: str = "main") -> TableName:
    """Return the table of a name, which may also be the name of its quarantine table."""
    table_name = TableName.parse(table)
    version = lake.store.state(branch).get(table_name) if table_name.layer == QUARANTINE_LAYER else None
    if version is None:
        return table_name
    from runnel.lake.iceberg import table_properties
    from runnel.lake.iceberg.table_metadata import load_metadata

    return TableName.parse_unchecked(
        load_metadata(lake.store, version.location).properties.get(table_properties.QUARANTINE_OF, str(table_name))
    )


def _find_source(lake: "Lake", table: TableName) -> Source:
    from runnel.project.planning.plan_project import load_project_flow

    flow = load_project_flow(lake)
    if table in flow.sources:
        return flow.sources[table]
    if table in flow.tasks:
        what = (
            f"a task computes `{table}`: its rows leave {quarantine_table_of(table)} when it is computed without them"
        )
        fix = f"correct what it reads or its check; runnel run -s {table} --full-refresh computes it again"
        raise Mistake("RELEASE_TASK", what, at=str(flow.tasks[table].place), fix=fix)
    what = f"no source fills `{table}`" + did_you_mean(str(table), [str(name) for name in flow.sources])
    raise Mistake("RELEASE_UNKNOWN", what, fix="runnel quarantine lists what is set aside")

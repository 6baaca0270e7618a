"""Release rows that a source set aside: which source, which rows, and what a task's rows need instead."""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.declare.model.flow import QUARANTINE, Source, quarantine_of
from runnel.errors import Mistake, nearest
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.release import Released


def release(
    lake: "Lake", table: str, corrected: Path | None = None, *, file: str | None = None, branch: str = "main"
) -> "Released":
    """Send the rows of a source that are aside through again; those of one `file` if given."""
    from runnel.connect.ingest.release import release as send
    from runnel.connect.load.quarantine import held

    source = _source(lake, named(lake, table, branch))
    aside = held(lake.store, source.table, branch, file)
    chosen = [row for row in aside if row.raw is not None]  # else a file that could not be read at all
    if not chosen:
        of = f" of {file}" if file else ""
        what = f"no row{of} of `{source.table}` is set aside on branch `{branch}`"
        raise Mistake("RELEASE_NOTHING", what, fix=f"runnel quarantine {source.table} shows them")
    return send(lake.store, source, lake.settings.root, chosen, corrected, branch=branch)


def named(lake: "Lake", table: str, branch: str = "main") -> TableName:
    """Return the table that someone means, who may name its quarantine table."""
    found = TableName.parse(table)
    version = lake.store.state(branch).get(found) if found.layer == QUARANTINE else None
    if version is None:
        return found
    from runnel.lake.iceberg import table_properties
    from runnel.lake.iceberg.table_metadata import load

    return TableName.stored(
        load(lake.store, version.location).properties.get(table_properties.QUARANTINE_OF, str(found))
    )


def _source(lake: "Lake", table: TableName) -> Source:
    from runnel.project.planning.plan_project import flow_of

    flow = flow_of(lake)
    if table in flow.sources:
        return flow.sources[table]
    if table in flow.tasks:
        what = f"`{table}` is made by a task: its rows leave {quarantine_of(table)} when it is computed without them"
        fix = f"correct what it reads or its check; runnel run -s {table} --full-refresh computes it again"
        raise Mistake("RELEASE_TASK", what, at=str(flow.tasks[table].place), fix=fix)
    close = nearest(str(table), [str(name) for name in flow.sources])
    what = f"no source makes `{table}`" + (f"; close: `{close}`" if close else "")
    raise Mistake("RELEASE_UNKNOWN", what, fix="runnel quarantine lists what is set aside")

"""Rewind a source: its table, its quarantine table and other tables that it fills are reset together."""

from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import log_table_of, quarantine_table_of
from runnel.errors import RunnelError
from runnel.lake.merge.rewind import RewindResult, rewind_table
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow


def rewind(
    lake: "Lake", source: str, to: str, branch: str = "main", *, dry: bool = False, flow: "Flow | None" = None
) -> RewindResult:
    """Reset a source's tables and position to a ref. A source with a change log has the position of its log.

    `flow` is the loaded project, if there is one.
    """
    table = TableName.parse(source)
    position_table, other_tables = (
        (log_table_of(table), (table,)) if _has_change_log(lake, table, flow) else (table, ())
    )
    return rewind_table(
        lake.store,
        position_table,
        to,
        branch=branch,
        other_tables=(*other_tables, quarantine_table_of(position_table)),
        dry_run=dry,
    )


def _has_change_log(lake: "Lake", table: TableName, flow: "Flow | None") -> bool:
    from runnel.project.planning.plan_project import load_project_flow

    try:
        source = (flow or load_project_flow(lake)).sources.get(table)
    except RunnelError:  # a project with mistakes can be rewound too
        return False
    return source is not None and isinstance(source.origin, Changes)

"""Rewind a source: its table, its quarantine table and what else it fills go back together."""

from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import log_of, quarantine_of
from runnel.errors import RunnelError
from runnel.lake.merge.rewind import Rewound
from runnel.lake.merge.rewind import rewind as rewind_table
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake


def rewind(lake: "Lake", source: str, to: str, branch: str = "main", *, dry: bool = False) -> Rewound:
    """Take a source's tables and its position back to a ref. That of a log of changes is its log's."""
    table = TableName.parse(source)
    read, also = (log_of(table), (table,)) if _is_log(lake, table) else (table, ())
    return rewind_table(lake.store, read, to, branch=branch, also=(*also, quarantine_of(read)), dry=dry)


def _is_log(lake: "Lake", table: TableName) -> bool:
    from runnel.project.planning.plan_project import flow_of

    try:
        found = flow_of(lake).sources.get(table)
    except RunnelError:  # a project with mistakes can be repaired too
        return False
    return found is not None and isinstance(found.origin, Changes)

"""Refuse to erase rows from a table that is computed from a change log while the log has them.

The next run would restore them. Reads only.
"""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.declare.model.flow import log_table_of
from runnel.errors import Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.refs import read_head
from runnel.lake.upkeep.erase.condition import Condition
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.lake.work_runner import WorkContext
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store


def refuse_rows_in_log(store: "Store", table: TableName, condition: Condition, work: WorkContext) -> None:
    """Raise ERASE_LOG if the change log of a table has rows to be erased, or if that can't be determined."""
    log = log_table_of(table)
    if not store.db.read(lambda connection: _is_filled_by_source(connection, log)):
        return
    reason = "has such rows"
    erasure = Erasure(store, log, condition, work)
    try:
        erasure.find_affected_versions()
    except RunnelError as error:
        reason = f"may have such rows ({error.what})"
    else:
        if erasure.is_empty:
            return
    what = (
        f"`{table}` is built from its log `{log}`, which {reason}: the next run would restore them; nothing was erased"
    )
    raise Mistake("ERASE_LOG", what, fix=f"runnel erase {log} --where ... first, then erase from `{table}`")


def _is_filled_by_source(connection: Connection, log: TableName) -> bool:
    """Return whether a branch has a table of this name that a source fills."""
    heads = schema.heads.c
    branches = connection.execute(sa.select(heads.branch).where(heads.table_name == str(log))).scalars().all()
    return any(has_ingested(connection, read_head(connection, branch), log) for branch in branches)

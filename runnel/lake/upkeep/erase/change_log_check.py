"""Refuse to erase rows from a table that follows from a log of changes while its log has them.

The next run would restore them. Reads only.
"""

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.declare.model.flow import log_of
from runnel.errors import Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.refs import head
from runnel.lake.upkeep.erase.condition import Condition
from runnel.lake.upkeep.erase.erasure import Erasure
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store


def refuse_rows_in_log(store: "Store", table: TableName, condition: Condition) -> None:
    """Raise ERASE_LOG if the log that a table follows from has rows to be erased, or can't tell."""
    log = log_of(table)
    if not store.db.read(lambda connection: _is_read(connection, log)):
        return
    why = "has such rows"
    erasure = Erasure(store, log, condition, None)
    try:
        erasure.look()
    except RunnelError as error:
        why = f"may have such rows ({error.what})"
    else:
        if erasure.is_empty:
            return
    what = f"`{table}` follows from its log `{log}`, which {why}: the next run would restore them; nothing was erased"
    raise Mistake("ERASE_LOG", what, fix=f"runnel erase {log} --where ... first, then erase from `{table}`")


def _is_read(connection: Connection, log: TableName) -> bool:
    """Tell whether a branch has a table of this name that a source fills."""
    heads = schema.heads.c
    branches = connection.execute(sa.select(heads.branch).where(heads.table_name == str(log))).scalars().all()
    return any(has_ingested(connection, head(connection, branch), log) for branch in branches)

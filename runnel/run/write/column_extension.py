"""Notice that a table only gained columns: what it had is there, row by row.

Tasks that don't use the new columns need not be computed again.
"""

from typing import TYPE_CHECKING

from runnel.lake.iceberg.table_metadata import load
from runnel.run import content_tally
from runnel.run.write.target_layout import columns_of
from runnel.run.write.write_frame import measured

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.plan.facts import Head
    from runnel.run.task_context import Context


def extended(context: "Context", task: "Task", schema: "StructType", base: "Head | None") -> str | None:
    """Return the content of `base` if the table, as it was just written, is that with more columns; else None.

    Reads the columns that were there once more, and only where columns came and none went.
    """
    if base is None or not base.content.startswith("rows:"):
        return None
    before = {field.name for field in load(context.store, base.location).schema().fields}
    columns = columns_of(schema)
    kept = [column for column in columns if column.name in before]
    if len(kept) != len(before) or len(columns) == len(before):
        return None
    found = measured(context.session.table(context.identifier(task.table)), kept, kept, ())
    return base.content if content_tally.content(kept, content_tally.read(found)) == base.content else None

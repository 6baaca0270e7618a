"""Detect that a table only gained columns while its other columns kept their rows.

Tasks that don't use the new columns need not be computed again.
"""

from typing import TYPE_CHECKING

from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.run import content_tally
from runnel.run.write.target_layout import list_columns
from runnel.run.write.write_frame import measure_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.model.table_version import TableVersion
    from runnel.run.task_context import TaskContext


def find_extended_content(
    context: "TaskContext", task: "Task", schema: "StructType", base: "TableVersion | None"
) -> str | None:
    """Return the content of `base` if the written table is `base` with more columns; else None.

    Reads the old columns of the table once more, but only if columns were added and none removed.
    """
    if base is None or not base.content.startswith("rows:"):
        return None
    base_columns = {field.name for field in load_metadata(context.store, base.location).schema().fields}
    columns = list_columns(schema)
    retained_columns = [column for column in columns if column.name in base_columns]
    if len(retained_columns) != len(base_columns) or len(columns) == len(base_columns):
        return None
    measures = measure_rows(
        context.session.table(context.identifier(task.table)), retained_columns, retained_columns, ()
    )
    return (
        base.content
        if content_tally.build_content_id(retained_columns, content_tally.read(measures)) == base.content
        else None
    )

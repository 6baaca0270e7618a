"""Give a task's table the shape that its frame needs: columns, partitions, order, properties. Stages a version only."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from runnel.connect.iceberg_types import field_of
from runnel.connect.load.partition_spec import spec_of
from runnel.connect.load.schema_updates import key_property
from runnel.declare.model.column_types import Column
from runnel.errors import Mistake, listed, nearest
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.schema_evolution import reshape
from runnel.names import shown
from runnel.run.write.frame_schema import kind_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.lake.store import Store
    from runnel.plan.facts import Head

_DISTRIBUTION = "write.distribution-mode"
_SORT = re.compile(r"\s*(.+?)(?:\s+(asc|desc))?\s*\Z", re.IGNORECASE | re.DOTALL)


def prepare(
    store: "Store",
    task: "Task",
    schema: "StructType",
    base: "Head | None",
    *,
    partition: Sequence[str] | None = None,
) -> str:
    """Return a version of a task's table that a frame of this schema can be written into: `base` where it fits.

    `partition` is how the table is to be parted; as the task says, unless told.
    """
    wanted = Schema(*(field_of(column) for column in columns_of(schema, task.options.schema or ())))
    parted = task.options.partition if partition is None else tuple(partition)
    return reshape(
        store,
        task.table,
        base.location if base else None,
        wanted,
        spec=lambda found: _spec(task, parted, found),
        sort=lambda found: _sort(task, found),
        properties=_properties(task, parted, wanted),
    )


def columns_of(schema: "StructType", declared: Sequence[Column] = ()) -> tuple[Column, ...]:
    """Return the columns of a frame, with what is declared about them."""
    comments = {column.name.lower(): column.comment for column in declared}
    return tuple(
        Column(field.name, kind_of(field.dataType.jsonValue()), comment=comments.get(field.name.lower()))
        for field in schema.fields
    )


def _properties(task: "Task", partition: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return the table's properties, the user's own ones last.

    Rows go to the files in the order in which they come, unless they have to be parted: a shuffle costs more than the
    few small files that it would save, and Spark has joined small partitions by then. Never by range: finding the
    ranges computes the frame twice.
    """
    try:
        key = key_property(task.options.key, schema)
    except Mistake as error:
        raise Mistake("RUN_KEY", f"task `{task.table}`: {error.what}", at=str(task.place), fix=error.fix) from error
    found = {table_properties.MADE_BY: "task", _DISTRIBUTION: "hash" if partition else "none", **key}
    return {**found, **dict(task.options.properties)}


def _spec(task: "Task", partition: Sequence[str], schema: Schema) -> PartitionSpec:
    try:
        return spec_of(partition, schema)
    except Mistake as error:
        what = f"task `{task.table}`: {error.what}"
        fix = (error.fix or "").replace(" with --schema", "")
        raise Mistake("RUN_PARTITION", what, at=str(task.place), fix=fix or None) from error


def _sort(task: "Task", schema: Schema) -> SortOrder:
    fields = [_sort_field(task, text, schema) for text in task.options.sort]
    return SortOrder(*fields, order_id=1 if fields else 0)


def _sort_field(task: "Task", text: str, schema: Schema) -> SortField:
    found = _SORT.match(text)
    name = (found[1] if found else text).strip("`")
    field = next((field for field in schema.fields if field.name.lower() == name.lower()), None)
    if field is None or not field.field_type.is_primitive:
        names = [field.name for field in schema.fields if field.field_type.is_primitive]
        close = nearest(name, names)
        what = f"task `{task.table}`: there is no column {shown(name)} to sort by"
        what += f"; close: `{close}`" if close else ""
        raise Mistake("RUN_SORT", what, at=str(task.place), fix=f"choose among {listed(names)}")
    is_down = bool(found and found[2] and found[2].lower() == "desc")
    return SortField(
        source_id=field.field_id,
        transform=IdentityTransform(),
        direction=SortDirection.DESC if is_down else SortDirection.ASC,
        null_order=NullOrder.NULLS_LAST if is_down else NullOrder.NULLS_FIRST,
    )

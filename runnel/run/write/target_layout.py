"""Prepare a task's table for its frame: columns, partitions, sort order, properties. Only stages a version."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from runnel.connect.iceberg_types import to_iceberg_field
from runnel.connect.load.partition_spec import parse_partition_spec
from runnel.connect.load.schema_updates import build_key_property
from runnel.declare.model.column_types import Column, parse_json_type
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.schema_evolution import evolve_table
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion

_DISTRIBUTION = "write.distribution-mode"
_SORT = re.compile(r"\s*(.+?)(?:\s+(asc|desc))?\s*\Z", re.IGNORECASE | re.DOTALL)


def prepare_table(
    store: "Store",
    task: "Task",
    schema: "StructType",
    base: "TableVersion | None",
    *,
    partition: Sequence[str] | None = None,
) -> str:
    """Return a version of a task's table that a frame of this schema can be written into: `base` if it fits.

    `partition` overrides the partitioning that the task declares.
    """
    table_schema = Schema(*(to_iceberg_field(column) for column in list_columns(schema, task.options.schema or ())))
    partition_fields = task.options.partition if partition is None else tuple(partition)
    return evolve_table(
        store,
        task.table,
        base.location if base else None,
        table_schema,
        spec=lambda evolved_schema: _build_partition_spec(task, partition_fields, evolved_schema),
        sort=lambda evolved_schema: _build_sort_order(task, evolved_schema),
        properties=_build_properties(task, partition_fields, table_schema),
    )


def list_columns(schema: "StructType", declared: Sequence[Column] = ()) -> tuple[Column, ...]:
    """Return the columns of a frame, with their declared comments."""
    comments = {column.name.lower(): column.comment for column in declared}
    return tuple(
        Column(field.name, parse_json_type(field.dataType.jsonValue()), comment=comments.get(field.name.lower()))
        for field in schema.fields
    )


def _build_properties(task: "Task", partition: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return the table's properties, the user's own ones last.

    Rows are written as they come, unless the table is partitioned: a shuffle costs more than the few small files that
    it would save, and Spark has coalesced small partitions by then. Never by range: finding the ranges computes the
    frame twice.
    """
    try:
        key = build_key_property(task.options.key, schema)
    except Mistake as error:
        raise Mistake("RUN_KEY", f"task `{task.table}`: {error.what}", at=str(task.place), fix=error.fix) from error
    properties = {table_properties.MADE_BY: "task", _DISTRIBUTION: "hash" if partition else "none", **key}
    return {**properties, **dict(task.options.properties)}


def _build_partition_spec(task: "Task", partition: Sequence[str], schema: Schema) -> PartitionSpec:
    try:
        return parse_partition_spec(partition, schema)
    except Mistake as error:
        what = f"task `{task.table}`: {error.what}"
        fix = (error.fix or "").replace(" with --schema", "")
        raise Mistake("RUN_PARTITION", what, at=str(task.place), fix=fix or None) from error


def _build_sort_order(task: "Task", schema: Schema) -> SortOrder:
    fields = [_build_sort_field(task, text, schema) for text in task.options.sort]
    return SortOrder(*fields, order_id=1 if fields else 0)


def _build_sort_field(task: "Task", text: str, schema: Schema) -> SortField:
    match = _SORT.match(text)
    name = (match[1] if match else text).strip("`")
    field = next((field for field in schema.fields if field.name.lower() == name.lower()), None)
    if field is None or not field.field_type.is_primitive:
        names = [field.name for field in schema.fields if field.field_type.is_primitive]
        what = f"task `{task.table}`: there is no column {quote_value(name)} to sort by"
        what += did_you_mean(name, names)
        raise Mistake("RUN_SORT", what, at=str(task.place), fix=f"choose among {join_names(names)}")
    is_descending = bool(match and match[2] and match[2].lower() == "desc")
    return SortField(
        source_id=field.field_id,
        transform=IdentityTransform(),
        direction=SortDirection.DESC if is_descending else SortDirection.ASC,
        null_order=NullOrder.NULLS_LAST if is_descending else NullOrder.NULLS_FIRST,
    )

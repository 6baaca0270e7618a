"""Manifest entries of registered files: counts and bounds from the footer, the partition from bounds or path."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.io.fileformat import DataFileStatistics
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from runnel.connect.files.parquet import Footer
from runnel.connect.iceberg_types import bare
from runnel.errors import Mistake

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema

FIX = "load it without --in-place"


def data_file(metadata: TableMetadata, footer: Footer, in_path: Mapping[str, Any]) -> DataFile:
    """Return the manifest's entry of a file, with its size, so that a later change of the file can be seen."""
    statistics = _statistics(metadata, footer)
    _not_null(metadata, footer, statistics)
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=footer.file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(
            *(_partition_value(metadata, part, footer, in_path, statistics) for part in metadata.spec().fields)
        ),
        file_size_in_bytes=footer.file.bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    made.spec_id = metadata.default_spec_id
    return made


def _partition_value(
    metadata: TableMetadata,
    part: "PartitionField",
    footer: Footer,
    in_path: Mapping[str, Any],
    statistics: DataFileStatistics,
) -> Any:
    field = metadata.schema().find_field(part.source_id)
    if footer.in_path(field.name):
        if not isinstance(part.transform, IdentityTransform):
            raise _mixed(footer, f"`{field.name}`, which only its path names, is not a partition by itself")
        return partition_record_value(part, in_path[field.name], metadata.schema())
    if footer.kind(field.name) is None:
        return None
    nulls = statistics.null_value_counts.get(field.field_id)
    bounds = statistics.column_aggregates.get(field.field_id)
    if nulls == footer.metadata.num_rows:
        return None
    if nulls != 0 or bounds is None or bounds.current_min is None or not part.transform.preserves_order:
        raise _mixed(footer, f"its footer does not say that `{part.name}` is the same in all its rows")
    apply = part.transform.transform(field.field_type)
    low, high = (apply(_internal(field, value)) for value in (bounds.current_min, bounds.current_max))
    if low != high:
        raise _mixed(footer, f"`{part.name}` is not the same in all its rows")
    return low


def _internal(field: NestedField, value: Any) -> Any:
    """Return a value of a footer as Iceberg's transforms take it."""
    from pyiceberg.expressions.literals import literal as literal_of

    return literal_of(value).to(field.field_type).value


def _not_null(metadata: TableMetadata, footer: Footer, statistics: DataFileStatistics) -> None:
    for field in metadata.schema().fields:
        if field.required and statistics.null_value_counts.get(field.field_id) != 0:
            what = f"{footer.file.name} can't be registered: `{field.name}` may not be null, and its footer shows nulls"
            raise Mistake("LOAD_IN_PLACE", what, at=footer.file.name, fix=FIX)


def _statistics(metadata: TableMetadata, footer: Footer) -> DataFileStatistics:
    """Return what a footer says of the table's columns."""
    schema = metadata.schema()
    plan, ids = compute_statistics_plan(schema, metadata.properties), _ids(schema, footer)
    for position in range(footer.metadata.num_columns):
        path = footer.metadata.schema.column(position).path
        if path not in ids:  # PyIceberg wants an id for every column
            ids[path] = -1 - position
            plan[ids[path]] = StatisticsCollector(ids[path], StringType(), MetricsMode(MetricModeTypes.NONE), path)
    counts = MetricsMode(MetricModeTypes.COUNTS)
    for name, kind in footer.kinds.items():
        field = column_of(schema, name)
        if field is not None and bare(field.field_type) != bare(kind):  # bounds are stored in the file's own type
            plan[field.field_id] = replace(plan[field.field_id], mode=counts)
    try:
        found = data_file_statistics_from_parquet_metadata(footer.metadata, plan, ids)
    except ValueError:  # bounds in a form that PyIceberg does not read: do without
        plan = {key: replace(each, mode=counts) for key, each in plan.items()}
        found = data_file_statistics_from_parquet_metadata(footer.metadata, plan, ids)
    return replace(found, column_sizes={key: size for key, size in found.column_sizes.items() if key >= 0})


def _mixed(footer: Footer, why: str) -> Mistake:
    what = f"{footer.file.name} can't be registered as one partition: {why}"
    return Mistake("LOAD_IN_PLACE_PARTITION", what, at=footer.file.name, fix=FIX + ", which splits it")


def _ids(schema: "Schema", footer: Footer) -> dict[str, int]:
    """Return the field id of each column path of a file, spelled as the file does."""
    ids = parquet_path_to_id_mapping(schema)
    found = {}
    for position in range(footer.metadata.num_columns):
        path = footer.metadata.schema.column(position).path
        first, dot, rest = path.partition(".")
        field = column_of(schema, path) or column_of(schema, first)
        spelled = (
            path if field is None else (field.name if field.name.lower() == path.lower() else field.name + dot + rest)
        )
        if spelled in ids:
            found[path] = ids[spelled]
    return found


def column_of(schema: "Schema", name: str) -> NestedField | None:
    """Return the table's column of a name, whatever its case."""
    return next((field for field in schema.fields if field.name.lower() == name.lower()), None)

"""Build manifest entries of registered files: counts and bounds from the footer, the partition from bounds or path."""

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

from runnel.connect.files.parquet import FileFooter
from runnel.connect.iceberg_types import strip_field_ids
from runnel.errors import Mistake

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema

IN_PLACE_FIX = "load it without --in-place"


def build_data_file(metadata: TableMetadata, footer: FileFooter, values_in_path: Mapping[str, Any]) -> DataFile:
    """Return the manifest entry of a file; its size allows a later change of the file to be detected."""
    statistics = _read_statistics(metadata, footer)
    _refuse_nulls(metadata, footer, statistics)
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=footer.file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(
            *(
                _find_partition_value(metadata, partition_field, footer, values_in_path, statistics)
                for partition_field in metadata.spec().fields
            )
        ),
        file_size_in_bytes=footer.file.bytes,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    entry.spec_id = metadata.default_spec_id
    return entry


def _find_partition_value(
    metadata: TableMetadata,
    partition_field: "PartitionField",
    footer: FileFooter,
    values_in_path: Mapping[str, Any],
    statistics: DataFileStatistics,
) -> Any:
    field = metadata.schema().find_field(partition_field.source_id)
    if footer.is_in_path(field.name):
        if not isinstance(partition_field.transform, IdentityTransform):
            raise _describe_mixed_partition(
                footer, f"`{field.name}`, which only its path names, is not a partition by itself"
            )
        return partition_record_value(partition_field, values_in_path[field.name], metadata.schema())
    if footer.find_type(field.name) is None:
        return None
    nulls = statistics.null_value_counts.get(field.field_id)
    bounds = statistics.column_aggregates.get(field.field_id)
    if nulls == footer.metadata.num_rows:
        return None
    if nulls != 0 or bounds is None or bounds.current_min is None or not partition_field.transform.preserves_order:
        raise _describe_mixed_partition(
            footer, f"its footer does not say that `{partition_field.name}` is the same in all its rows"
        )
    transform = partition_field.transform.transform(field.field_type)
    low, high = (transform(_to_iceberg_value(field, value)) for value in (bounds.current_min, bounds.current_max))
    if low != high:
        raise _describe_mixed_partition(footer, f"`{partition_field.name}` is not the same in all its rows")
    return low


def _to_iceberg_value(field: NestedField, value: Any) -> Any:
    """Convert a value of a footer to the form that Iceberg's transforms expect."""
    from pyiceberg.expressions.literals import literal as literal_of

    return literal_of(value).to(field.field_type).value


def _refuse_nulls(metadata: TableMetadata, footer: FileFooter, statistics: DataFileStatistics) -> None:
    for field in metadata.schema().fields:
        if field.required and statistics.null_value_counts.get(field.field_id) != 0:
            what = f"{footer.file.name} can't be registered: `{field.name}` may not be null, and its footer shows nulls"
            raise Mistake("LOAD_IN_PLACE", what, at=footer.file.name, fix=IN_PLACE_FIX)


def _read_statistics(metadata: TableMetadata, footer: FileFooter) -> DataFileStatistics:
    """Return the statistics that a footer has for the table's columns."""
    schema = metadata.schema()
    plan, ids = compute_statistics_plan(schema, metadata.properties), _map_field_ids(schema, footer)
    for position in range(footer.metadata.num_columns):
        path = footer.metadata.schema.column(position).path
        if path not in ids:  # PyIceberg wants an id for every column
            ids[path] = -1 - position
            plan[ids[path]] = StatisticsCollector(ids[path], StringType(), MetricsMode(MetricModeTypes.NONE), path)
    counts = MetricsMode(MetricModeTypes.COUNTS)
    for name, kind in footer.kinds.items():
        field = find_column(schema, name)
        if field is not None and strip_field_ids(field.field_type) != strip_field_ids(
            kind
        ):  # bounds are stored in the file's own type
            plan[field.field_id] = replace(plan[field.field_id], mode=counts)
    try:
        statistics = data_file_statistics_from_parquet_metadata(footer.metadata, plan, ids)
    except ValueError:  # PyIceberg can't read these bounds: use counts only
        plan = {key: replace(collector, mode=counts) for key, collector in plan.items()}
        statistics = data_file_statistics_from_parquet_metadata(footer.metadata, plan, ids)
    return replace(statistics, column_sizes={key: size for key, size in statistics.column_sizes.items() if key >= 0})


def _describe_mixed_partition(footer: FileFooter, why: str) -> Mistake:
    what = f"{footer.file.name} can't be registered as one partition: {why}"
    return Mistake("LOAD_IN_PLACE_PARTITION", what, at=footer.file.name, fix=IN_PLACE_FIX + ", which splits it")


def _map_field_ids(schema: "Schema", footer: FileFooter) -> dict[str, int]:
    """Return the field id of each column path of a file, spelled as the file does."""
    ids = parquet_path_to_id_mapping(schema)
    ids_by_path = {}
    for position in range(footer.metadata.num_columns):
        path = footer.metadata.schema.column(position).path
        top_level_name, dot, nested_path = path.partition(".")
        field = find_column(schema, path) or find_column(schema, top_level_name)
        table_path = (
            path
            if field is None
            else (field.name if field.name.lower() == path.lower() else field.name + dot + nested_path)
        )
        if table_path in ids:
            ids_by_path[path] = ids[table_path]
    return ids_by_path


def find_column(schema: "Schema", name: str) -> NestedField | None:
    """Return the table's column of this name, ignoring case."""
    return next((field for field in schema.fields if field.name.lower() == name.lower()), None)

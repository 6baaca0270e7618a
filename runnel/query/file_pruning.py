"""Choose the files of a table that a query has to read.

Prunes whole manifests first, by their partition summaries; then single files, by partition and column bounds. Never
prunes a file that may have a matching row. Versions never change, so plans are cached.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import LRUCache, cached
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, FloatType

from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_manifest_entries, read_manifests
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import rows_sql
from runnel.query.table_schemas import TEXT_TYPES

if TYPE_CHECKING:
    from runnel.lake.store import Store

MIN_PRUNED_FILES = 8
_MAX_CACHED = 1024


@dataclass(frozen=True)
class TableScan:
    """The files of a version that a query reads, as a SELECT and the name of a view over it.

    `outside` are those files that are not in the warehouse.
    """

    view: str
    select: str
    bytes: int
    paths: tuple[str, ...]
    external_files: frozenset[str]


def _cache_key(_store: "Store", location: str, row_filter: BooleanExpression | None = None) -> tuple[str, str]:
    return location, str(row_filter or "")


_cached_scans: LRUCache[tuple[str, str], TableScan] = LRUCache(_MAX_CACHED)


@cached(_cached_scans, key=_cache_key, lock=threading.Lock())
def plan_scan(store: "Store", location: str, row_filter: BooleanExpression | None = None) -> TableScan:
    """Return the scan of a version for the rows that satisfy `row_filter`; it may include other rows."""
    metadata = load_metadata(store, location)
    scanned_entries = prune_files(store, metadata, row_filter or AlwaysTrue())
    select = _cast_to_spark_types(metadata, rows_sql(store, metadata, scanned_entries))
    root = normalize_location(store.warehouse).rstrip("/") + "/"
    paths = tuple(normalize_location(entry.path) for entry in scanned_entries)
    return TableScan(
        "v" + hashlib.sha256(select.encode()).hexdigest()[:24],
        select,
        sum(entry.file.file_size_in_bytes for entry in scanned_entries),
        paths,
        frozenset(path for path in paths if not path.startswith(root)),
    )


def _cast_to_spark_types(metadata: TableMetadata, select: str) -> str:
    names = [
        quote_identifier(field.name) for field in metadata.schema().fields if isinstance(field.field_type, TEXT_TYPES)
    ]
    casts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in names)
    return f"SELECT * REPLACE ({casts}) FROM ({select})" if names else select


def prune_files(store: "Store", metadata: TableMetadata, row_filter: BooleanExpression) -> list[FileEntry]:
    """Return the live files of a version that may have rows that satisfy `row_filter`, and all of its delete files."""
    manifest_files = read_manifests(store, metadata)
    count = sum(
        (manifest_file.added_files_count or 0) + (manifest_file.existing_files_count or 0)
        for manifest_file in manifest_files
    )
    if count <= MIN_PRUNED_FILES or isinstance(row_filter, AlwaysTrue):
        return [entry for manifest_file in manifest_files for entry in read_manifest_entries(store, manifest_file)]
    schema = metadata.schema()
    may_match_file = _InclusiveMetricsEvaluator(schema, row_filter, case_sensitive=False).eval
    partition_filters = {spec_id: _PartitionFilter(metadata, spec_id, row_filter) for spec_id in metadata.specs()}
    scanned_entries: list[FileEntry] = []
    for manifest_file in manifest_files:
        if manifest_file.content == ManifestContent.DELETES:
            scanned_entries.extend(read_manifest_entries(store, manifest_file))
        elif partition_filters[manifest_file.partition_spec_id].may_match_manifest(manifest_file):
            partition_filter = partition_filters[manifest_file.partition_spec_id]
            live_entries = read_manifest_entries(store, manifest_file)
            scanned_entries.extend(
                entry
                for entry in live_entries
                if partition_filter.may_match_entry(entry) and may_match_file(entry.file)
            )
    return scanned_entries


class _PartitionFilter:
    """Tells which partitions of a spec may have matching rows; all of them if that can't be known."""

    def __init__(self, metadata: TableMetadata, spec_id: int, row_filter: BooleanExpression) -> None:
        spec, schema = metadata.specs()[spec_id], metadata.schema()
        self.may_match_manifest: Callable[[ManifestFile], bool] = lambda _: True
        self.may_match_entry: Callable[[FileEntry], bool] = lambda _: True
        source_ids = {field.source_id for field in spec.fields}
        if spec.is_unpartitioned() or not source_ids <= set(schema.field_ids):
            return  # a spec over a dropped column has no types to compare with
        if any(isinstance(schema.find_type(source_id), (FloatType, DoubleType)) for source_id in source_ids):
            return  # PyIceberg writes such partition values rounded to a float
        projected = inclusive_projection(schema, spec, case_sensitive=False)(row_filter)
        matches_partition = expression_evaluator(
            Schema(*spec.partition_type(schema).fields), projected, case_sensitive=False
        )
        self.may_match_manifest = manifest_evaluator(spec, schema, projected, case_sensitive=False)
        self.may_match_entry = lambda entry: matches_partition(entry.file.partition)

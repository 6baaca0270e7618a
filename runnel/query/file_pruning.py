"""Choose the files of a table that a query has to read.

Whole manifests go first, by their partition summaries; then single files, by partition and by the bounds of their
columns. Never a file that might hold a row that is asked for. Versions never change, so plans are kept.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.manifests import Entry, entries_in, manifests
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.scan_sql import quoted, rows_sql
from runnel.query.table_schemas import AS_TEXT

if TYPE_CHECKING:
    from runnel.lake.store import Store

FEW_FILES = 8
_KEPT = 1024


@dataclass(frozen=True)
class Source:
    """The files of a version that a query reads, as a SELECT and the name of a view over it.

    `outside` are those files that are not in the warehouse.
    """

    view: str
    select: str
    bytes: int
    paths: tuple[str, ...]
    outside: frozenset[str]


_kept: OrderedDict[tuple[str, str], Source] = OrderedDict()
_guard = threading.Lock()


def source(store: "Store", location: str, wanted: BooleanExpression | None = None) -> Source:
    """Return what to read of a version for the rows that satisfy `wanted`; other rows may come along."""
    key = (location, str(wanted or ""))
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    metadata = load(store, location)
    live = planned(store, metadata, wanted or AlwaysTrue())
    select = _in_spark_types(metadata, rows_sql(store, metadata, live))
    root = plain(store.warehouse).rstrip("/") + "/"
    paths = tuple(plain(entry.path) for entry in live)
    found = Source(
        "v" + hashlib.sha256(select.encode()).hexdigest()[:24],
        select,
        sum(entry.file.file_size_in_bytes for entry in live),
        paths,
        frozenset(path for path in paths if not path.startswith(root)),
    )
    with _guard:
        _kept[key] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found


def _in_spark_types(metadata: TableMetadata, select: str) -> str:
    names = [quoted(field.name) for field in metadata.schema().fields if isinstance(field.field_type, AS_TEXT)]
    replaced = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in names)
    return f"SELECT * REPLACE ({replaced}) FROM ({select})" if names else select


def planned(store: "Store", metadata: TableMetadata, wanted: BooleanExpression) -> list[Entry]:
    """Return the live files of a version that may hold rows that satisfy `wanted`, and all of its deletes."""
    listed = manifests(store, metadata)
    count = sum((one.added_files_count or 0) + (one.existing_files_count or 0) for one in listed)
    if count <= FEW_FILES or isinstance(wanted, AlwaysTrue):
        return [entry for one in listed for entry in entries_in(store, one)]
    schema = metadata.schema()
    may_hold = _InclusiveMetricsEvaluator(schema, wanted, case_sensitive=False).eval
    specs = {spec_id: _Partitions(metadata, spec_id, wanted) for spec_id in metadata.specs()}
    found: list[Entry] = []
    for one in listed:
        if one.content == ManifestContent.DELETES:
            found.extend(entries_in(store, one))
        elif specs[one.partition_spec_id].may_list(one):
            partitions = specs[one.partition_spec_id]
            live = entries_in(store, one)
            found.extend(entry for entry in live if partitions.may_be(entry) and may_hold(entry.file))
    return found


class _Partitions:
    """Tells which partitions of a spec may hold the wanted rows; all of them, where that can't be known."""

    def __init__(self, metadata: TableMetadata, spec_id: int, wanted: BooleanExpression) -> None:
        spec, schema = metadata.specs()[spec_id], metadata.schema()
        self.may_list: Callable[[ManifestFile], bool] = lambda manifest: True
        self.may_be: Callable[[Entry], bool] = lambda entry: True
        sources = {field.source_id for field in spec.fields}
        if spec.is_unpartitioned() or not sources <= set(schema.field_ids):
            return  # a spec over a column that was dropped since has no types to compare with
        if any(isinstance(schema.find_type(known), (FloatType, DoubleType)) for known in sources):
            return  # PyIceberg writes such partition values rounded to a float
        projected = inclusive_projection(schema, spec, case_sensitive=False)(wanted)
        record = expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, case_sensitive=False)
        self.may_list = manifest_evaluator(spec, schema, projected, case_sensitive=False)
        self.may_be = lambda entry: record(entry.file.partition)

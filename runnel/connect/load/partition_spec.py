"""Partitions as users write them: `day`, `month(ts)`, `bucket(16, id)`."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FloatType

from runnel.connect.iceberg_types import called
from runnel.errors import Mistake, nearest
from runnel.names import shown

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_CALL = re.compile(r"\s*([A-Za-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?`?([^`()]+?)`?\s*\)\s*\Z")
_TIMES: dict[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
FIX = "write a column or a transform of one: day, month(ts), bucket(16, id), truncate(4, name)"


def spec_of(texts: Sequence[str], schema: "Schema") -> PartitionSpec:
    """Return the partition spec that texts describe, for the columns of a schema."""
    fields = [_field(text, schema, PARTITION_FIELD_ID_START + position) for position, text in enumerate(texts)]
    sources = [field.source_id for field in fields]
    twice = next((source for source in sources if sources.count(source) > 1), None)
    if twice is not None:
        what = f"the table is partitioned twice by {shown(schema.find_column_name(twice))}"
        raise Mistake("LOAD_PARTITION", what, fix="name each column once: a day is part of its month anyway")
    return PartitionSpec(*fields)


def same_partitions(one: PartitionSpec, other: PartitionSpec) -> bool:
    """Tell whether two specs split rows in the same way, whatever their fields are called."""
    return [(f.source_id, f.transform) for f in one.fields] == [(f.source_id, f.transform) for f in other.fields]


def _field(text: str, schema: "Schema", field_id: int) -> PartitionField:
    call = _CALL.match(text)
    column = call[3] if call else text.strip().strip("`")
    source = next((field for field in schema.fields if field.name.lower() == column.lower()), None)
    if source is None:
        close = nearest(column, [field.name for field in schema.fields])
        what = f"there is no column {shown(column)} to partition by" + (f"; close: `{close}`" if close else "")
        raise Mistake("LOAD_PARTITION", what, fix=FIX)
    transform, suffix = _transform(text, call[1].lower(), call[2]) if call else (IdentityTransform(), "")
    if isinstance(source.field_type, FloatType | DoubleType):  # values that only look equal would part ways
        what = f"a {called(source.field_type)} can't be partitioned by: {shown(column)}"
        raise Mistake("LOAD_PARTITION", what, fix="declare it as a decimal with --schema, or choose another column")
    if not source.field_type.is_primitive or not transform.can_transform(source.field_type):
        what = f"a {called(source.field_type)} can't be partitioned by {shown(text)}"
        raise Mistake("LOAD_PARTITION", what, fix=FIX)
    name = source.name + suffix
    while suffix and any(field.name.lower() == name.lower() for field in schema.fields):
        name += "_"
    return PartitionField(source_id=source.field_id, field_id=field_id, transform=transform, name=name)


def _transform(text: str, name: str, number: str | None) -> tuple[Transform[Any, Any], str]:
    plain = name[:-1] if name.endswith("s") else name
    if plain in _TIMES and number is None:
        return _TIMES[plain], f"_{plain}"
    if name == "bucket" and number and 0 < int(number) < 100_000:
        return BucketTransform(int(number)), "_bucket"
    if name in ("truncate", "trunc") and number and int(number) > 0:
        return TruncateTransform(int(number)), "_trunc"
    if name == "identity" and number is None:
        return IdentityTransform(), ""
    raise Mistake("LOAD_PARTITION", f"{shown(text)} is not a way to partition", fix=FIX)

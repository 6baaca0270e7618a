"""Parse partition columns as users write them: `day`, `month(ts)`, `bucket(16, id)`."""

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

from runnel.errors import Mistake, did_you_mean
from runnel.lake.iceberg.schema_diff import describe_type
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_CALL = re.compile(r"\s*([A-Za-z]+)\s*\(\s*(?:(\d+)\s*,\s*)?`?([^`()]+?)`?\s*\)\s*\Z")
_TIME_TRANSFORMS: dict[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
PARTITION_FIX = "write a column or a transform of one: day, month(ts), bucket(16, id), truncate(4, name)"


def parse_partition_spec(texts: Sequence[str], schema: "Schema") -> PartitionSpec:
    """Return the partition spec that texts describe, for the columns of a schema."""
    fields = [
        _parse_partition_field(text, schema, PARTITION_FIELD_ID_START + position) for position, text in enumerate(texts)
    ]
    sources = [field.source_id for field in fields]
    repeated_source = next((source for source in sources if sources.count(source) > 1), None)
    if repeated_source is not None:
        what = f"the table is partitioned twice by {quote_value(schema.find_column_name(repeated_source))}"
        raise Mistake("LOAD_PARTITION", what, fix="name each column once: a day is part of its month anyway")
    return PartitionSpec(*fields)


def is_same_partitioning(first: PartitionSpec, second: PartitionSpec) -> bool:
    """Tell whether two specs partition rows in the same way, ignoring the names of their fields."""
    return [(f.source_id, f.transform) for f in first.fields] == [(f.source_id, f.transform) for f in second.fields]


def _parse_partition_field(text: str, schema: "Schema", field_id: int) -> PartitionField:
    call = _CALL.match(text)
    column = call[3] if call else text.strip().strip("`")
    source = next((field for field in schema.fields if field.name.lower() == column.lower()), None)
    if source is None:
        what = f"there is no column {quote_value(column)} to partition by" + did_you_mean(
            column, [field.name for field in schema.fields]
        )
        raise Mistake("LOAD_PARTITION", what, fix=PARTITION_FIX)
    transform, suffix = _parse_transform(text, call[1].lower(), call[2]) if call else (IdentityTransform(), "")
    if isinstance(source.field_type, FloatType | DoubleType):  # values that print alike may differ
        what = f"a {describe_type(source.field_type)} can't be partitioned by: {quote_value(column)}"
        raise Mistake("LOAD_PARTITION", what, fix="declare it as a decimal with --schema, or choose another column")
    if not source.field_type.is_primitive or not transform.can_transform(source.field_type):
        what = f"a {describe_type(source.field_type)} can't be partitioned by {quote_value(text)}"
        raise Mistake("LOAD_PARTITION", what, fix=PARTITION_FIX)
    name = source.name + suffix
    while suffix and any(field.name.lower() == name.lower() for field in schema.fields):
        name += "_"
    return PartitionField(source_id=source.field_id, field_id=field_id, transform=transform, name=name)


def _parse_transform(text: str, name: str, number: str | None) -> tuple[Transform[Any, Any], str]:
    singular = name[:-1] if name.endswith("s") else name
    if singular in _TIME_TRANSFORMS and number is None:
        return _TIME_TRANSFORMS[singular], f"_{singular}"
    if name == "bucket" and number and 0 < int(number) < 100_000:
        return BucketTransform(int(number)), "_bucket"
    if name in ("truncate", "trunc") and number and int(number) > 0:
        return TruncateTransform(int(number)), "_trunc"
    if name == "identity" and number is None:
        return IdentityTransform(), ""
    raise Mistake("LOAD_PARTITION", f"{quote_value(text)} is not a way to partition", fix=PARTITION_FIX)

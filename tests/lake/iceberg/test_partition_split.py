"""Splitting rows by partition agrees with PyIceberg's transforms, value by value."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from runnel.lake.iceberg.partition_split import split_by_partition

DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3), None, date(1960, 2, 29)]
TIMES = [datetime(1969, 12, 31, 23, 59), datetime(2026, 2, 3, 4, 5), None, datetime(1970, 1, 1)]
ZONED = [time and time.replace(tzinfo=UTC) for time in TIMES]
CASES = {
    "identity": (IdentityTransform(), StringType(), pa.array(["a", None, "b", "a"])),
    "year of a date": (YearTransform(), DateType(), pa.array(DAYS, pa.date32())),
    "month of a date": (MonthTransform(), DateType(), pa.array(DAYS, pa.date32())),
    "day of a date": (DayTransform(), DateType(), pa.array(DAYS, pa.date32())),
    "month of a time": (MonthTransform(), TimestamptzType(), pa.array(ZONED, pa.timestamp("us", "UTC"))),
    "day of a time": (DayTransform(), TimestampType(), pa.array(TIMES, pa.timestamp("us"))),
    "hour of a time": (HourTransform(), TimestamptzType(), pa.array(ZONED, pa.timestamp("us", "UTC"))),
    "bucket of a long": (BucketTransform(4), LongType(), pa.array([1, 2, None, -3, 1])),
    "bucket of a string": (BucketTransform(4), StringType(), pa.array(["a", "é", None])),
    "bucket of a date": (BucketTransform(4), DateType(), pa.array(DAYS, pa.date32())),
    "bucket of a time": (BucketTransform(4), TimestamptzType(), pa.array(ZONED, pa.timestamp("us", "UTC"))),
    "bucket of a decimal": (
        BucketTransform(4),
        DecimalType(9, 2),
        pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
    ),
    "truncated int": (TruncateTransform(10), IntegerType(), pa.array([-1, 11, 19, None], pa.int32())),
    "truncated string": (TruncateTransform(2), StringType(), pa.array(["abc", "abd", None, "é"])),
    "truncated decimal": (TruncateTransform(50), DecimalType(9, 2), pa.array([Decimal("10.65")], pa.decimal128(9, 2))),
    "nothing but null": (BucketTransform(4), LongType(), pa.array([None, None], pa.int64())),
}


@pytest.mark.parametrize(("transform", "kind", "values"), CASES.values(), ids=CASES)
def test_split(transform, kind, values):
    schema = Schema(NestedField(1, "v", kind), NestedField(2, "n", LongType()))
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=transform, name="p"))
    table = pa.table({"v": values, "n": pa.array(range(len(values)))})
    apply = transform.transform(kind)
    seen = []
    for key, rows in split_by_partition(spec, schema, table):
        found = {_plain(apply(value)) for value in rows.column("v").to_pylist()}
        assert found == {_plain(key.partition[0])} or (isinstance(transform, IdentityTransform) and len(found) == 1)
        assert rows.column("n").to_pylist() == sorted(rows.column("n").to_pylist())
        seen += rows.column("n").to_pylist()
    assert sorted(seen) == list(range(len(values)))


def _plain(value):
    return (value - date(1970, 1, 1)).days if isinstance(value, date) and not isinstance(value, datetime) else value

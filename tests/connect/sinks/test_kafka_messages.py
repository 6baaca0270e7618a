"""Keys of messages: the same for rows that are equal, however a map is ordered and a zero is written."""

import duckdb
import pytest
from pyiceberg.types import DoubleType, IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from runnel.connect.sinks.kafka_messages import KEY_HEADER, MessageBuilder
from runnel.lake.diff.compared_columns import ComparedColumn

MAP = MapType(1, StringType(), 2, DoubleType())
EQUAL: dict[str, tuple[IcebergType, str, str]] = {
    "order of a map": (MAP, "map {'a': 1e0, 'b': 2e0}", "map {'b': 2e0, 'a': 1e0}"),
    "map in a struct": (
        StructType(NestedField(3, "m", MAP)),
        "{'m': map {'a': 1e0, 'b': 2e0}}",
        "{'m': map {'b': 2e0, 'a': 1e0}}",
    ),
    "zeros": (DoubleType(), "0.0::double", "-0.0::double"),
    "zeros in a list": (ListType(1, DoubleType()), "[0.0::double, null]", "[-0.0::double, null]"),
}


def keys_of(kind: IcebergType, *values: str) -> list[str]:
    columns = (ComparedColumn("id", LongType()), ComparedColumn("v", kind))
    builder = MessageBuilder("sink/commit", "commit", columns, ("id",))
    with duckdb.connect() as con:
        con.execute(
            "create temp view came as " + " union all ".join(f"select 1::bigint as id, {v} as v" for v in values)
        )
        con.execute("create temp view gone as select 2::bigint as id, v from came")
        sent = list(builder.build_messages(con, has_removed_rows=True))
    return [dict(message.headers)[KEY_HEADER].decode() for message in sent]


@pytest.mark.parametrize(("kind", "first", "second"), EQUAL.values(), ids=EQUAL)
def test_equal_rows_have_the_same_key(kind: IcebergType, first: str, second: str) -> None:
    assert keys_of(kind, first) == keys_of(kind, second)


def test_copies_of_a_row_are_numbered_and_keys_that_went_have_their_own() -> None:
    one, two, other, removed = keys_of(LongType(), "1::bigint", "1::bigint", "2::bigint")
    assert two == f"{one}-2" and len({one, two, other, removed}) == 4
    assert all(key.startswith("sink/commit/") for key in (one, other, removed))

"""Frames are written in one pass that also counts, and contents are known by their rows alone."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation, functions

from runnel.declare.model.column_types import parse_columns
from runnel.errors import Mistake
from runnel.lake.iceberg.snapshot_descent import check_descent
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.run import content_tally
from runnel.run.content_tally import ContentTally
from runnel.run.task.refresh_table import BaseVersion, SchemaMismatch, apply_row_changes, replace_all_rows
from runnel.run.task_context import TaskContext
from runnel.run.write import write_frame
from runnel.run.write.target_layout import list_columns, prepare_table
from runnel.run.write.write_frame import FrameTarget, FrameWrite, Mode, save_frame
from tests.run.task_context import TABLE, files_of, frame, row, rows_of, task_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS = "id long, day string"
NESTED = "id int, s struct<x: int, y: array<string>>"


def write(
    context: TaskContext, made: "DataFrame", mode: Mode = "overwrite", base: str | None = None, **given: Any
) -> FrameWrite:
    task = task_with(**given.pop("options", {}))
    location = prepare_table(context.store, task, made.schema, TableVersion(base, base) if base else None)
    return save_frame(context, task.table, made, FrameTarget(location, mode), **given)


def content(context: TaskContext, schema: str, *given: tuple[Any, ...]) -> str:
    made = frame(context, schema, *given)
    return content_tally.build_content_id(list_columns(made.schema), write(context, made).tally)


def test_rows_are_written_counted_and_marked(context: TaskContext) -> None:
    first = write(context, frame(context, ORDERS, (1, "a"), (2, "b")))
    more = write(context, frame(context, ORDERS, (3, None)), "append", first.location)
    assert rows_of(context, more.location) == [(1, "a"), (2, "b"), (3, None)]
    assert (first.tally.rows, more.tally.rows) == (2, 1)
    check_descent(context.store, None, more.location, context.run)
    whole = write(context, frame(context, ORDERS, (3, None), (2, "b"), (1, "a")), "overwrite", more.location)
    assert whole.tally == first.tally.plus(more.tally)


EMPTY: dict[str, Callable[[TaskContext], "DataFrame"]] = {
    "no rows": lambda context: frame(context, ORDERS),
    "no row is chosen": lambda context: frame(context, ORDERS, (1, "a")).where("id > 5"),
    "nothing can be chosen": lambda context: frame(context, ORDERS, (1, "a")).where("false"),
    "none of many": lambda context: context.session.range(9).selectExpr("id", "string(id) day").limit(0),
}


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("made", EMPTY.values(), ids=EMPTY)
def test_an_empty_frame(context: TaskContext, made: Callable[[TaskContext], "DataFrame"], mode: Mode) -> None:
    written = write(context, made(context), mode, checks=[row("id > 0")])
    assert written.tally == ContentTally() and [finding.failed for finding in written.findings] == [0]
    assert rows_of(context, written.location) == []


def test_writes_side_by_side_each_get_their_own_counts(context: TaskContext) -> None:
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        for size in (0, number, 10 * number):
            made = context.session.range(size).selectExpr("id", "string(id) day")
            task = task_with()
            base = prepare_table(context.store, task, made.schema, None)
            written = save_frame(context, TableName("dws", f"made_{number}"), made, FrameTarget(base, "overwrite"))
            found.setdefault(number, []).append(written.tally.rows)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [0, number, 10 * number] for number in range(1, 5)}


@pytest.mark.parametrize("news", [None, {content_tally.ROWS: 99}], ids=["lost", "wrong"])
def test_what_spark_observed_is_counted_again_if_it_is(
    context: TaskContext, monkeypatch: pytest.MonkeyPatch, news: dict[str, int] | None
) -> None:
    first = write(context, frame(context, ORDERS, (1, "a"), (2, "b")), checks=[row("id > 1")])
    monkeypatch.setattr(write_frame, "wait_for_observation", lambda observation: news)
    again = write(context, frame(context, ORDERS, (2, "b"), (1, "a")), checks=[row("id > 1")])
    assert (again.tally, again.findings) == (first.tally, first.findings)
    more = write(context, frame(context, ORDERS, (3, "c")), "append", again.location)
    assert more.tally.rows == 1 and len(rows_of(context, more.location)) == 3


def test_an_observation_that_never_comes_is_not_waited_for(
    context: TaskContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_frame, "_PATIENCE_SECONDS", 0.1)
    observation = Observation()
    frame(context, ORDERS).observe(observation, functions.count(functions.lit(1)).alias("rows"))
    assert write_frame.wait_for_observation(observation) is None


SAME = {  # columns, the rows of both sides as SQL, whether their contents are equal
    "rows in another order": (ORDERS, "(1, 'a'), (2, 'b')", "(2, 'b'), (1, 'a')", True),
    "a row twice": (ORDERS, "(1, 'a')", "(1, 'a'), (1, 'a')", False),
    "another row twice": (ORDERS, "(1, 'a'), (1, 'a'), (2, 'b')", "(1, 'a'), (2, 'b'), (2, 'b')", False),
    "null on the other side": ("a int, b int", "(null, 1)", "(1, null)", False),
    "null and empty": ("a string", "(null)", "('')", False),
    "values changed places": ("a int, b int", "(1, 2), (3, 4)", "(1, 4), (3, 2)", False),
    "nulls in arrays": ("a array<int>", "(array(null, 1))", "(array(1, null))", False),
    "an empty array": ("a array<int>", "(array())", "(null)", False),
    "arrays cut elsewhere": ("a array<int>, b array<int>", "(array(1), array(2))", "(array(1, 2), array())", False),
    "maps have no order": ("m map<string, int>", "(map('x', 1, 'y', 2))", "(map('y', 2, 'x', 1))", True),
    "maps with other values": ("m map<string, int>", "(map('x', 1, 'y', 2))", "(map('x', 2, 'y', 1))", False),
    "inside structs": (NESTED, "(1, struct(1, array('p')))", "(1, struct(1, array('q')))", False),
    "minus zero": ("a double", "(double('-0.0'))", "(0)", False),
    "minus zero in an array": ("a array<float>", "(array(float('-0.0')))", "(array(float('0')))", False),
    "minus zero in a map": ("m map<int, double>", "(map(1, double('-0.0')))", "(map(1, double('0')))", False),
    "minus zero changed places": ("a double, b double", "(double('-0.0'), 0)", "(0, double('-0.0'))", False),
    "null and zero": ("a double", "(null)", "(0)", False),
    "not a number": ("a double", "(double('nan'))", "(double('nan'))", True),
    "null structs": ("id int, s struct<x: int>", "(1, struct(null))", "(1, null)", False),
}


@pytest.mark.parametrize(("schema", "one", "other", "is_same"), SAME.values(), ids=SAME)
def test_contents_are_equal_when(context: TaskContext, schema: str, one: str, other: str, is_same: bool) -> None:
    wanted = parse_columns(schema)
    names = ", ".join(column.name for column in wanted)
    chosen = ", ".join(f"cast({column.name} as {column.type}) as {column.name}" for column in wanted)
    sides = [f"select {at} as side, {chosen} from values {rows} v({names})" for at, rows in enumerate((one, other))]
    hashed = context.session.sql(" union all ".join(sides)).selectExpr("*", *content_tally.build_row_hashes(wanted))
    sums = [functions.expr(sql).alias(name) for name, sql in content_tally.build_sums().items()]
    found = hashed.groupBy("side").agg(*sums).collect()
    assert (content_tally.read(found[0].asDict()) == content_tally.read(found[1].asDict())) == is_same


def test_a_hash_of_numbers_is_what_it_was_before_minus_zero_counted(context: TaskContext) -> None:
    """Sums that a lake has kept are added to."""
    value = "xxhash64(17, a, isnull(a))"
    rows = context.session.sql("select a from values (null), (0D), (1.5D), (double('nan')) v(a)")
    found = rows.selectExpr(f"{value} as before", *content_tally.build_row_hashes(parse_columns("a double"))).collect()
    assert all(row["before"] == row[content_tally.FIRST_HASH] for row in found)


def test_columns_belong_to_the_content_and_their_order_does_not(context: TaskContext) -> None:
    first = content(context, "a int, b string", (1, "x"))
    assert content(context, "b string, a int", ("x", 1)) == first
    assert content(context, "a short, b string", (1, "x")) == first  # stored as an int
    assert content(context, "a long, b string", (1, "x")) != first
    assert content(context, "c int, b string", (1, "x")) != first


def test_odd_names(context: TaskContext) -> None:
    made = context.session.sql("select 1 as `a b`, 2 as `c.d`, named_struct('g h', 3) as `e``f`")
    written = write(context, made, checks=[row("`a b` > 0 and `c.d` > 0")])
    assert rows_of(context, written.location) == [(1, 2, (3,))]


FILES: dict[str, tuple[str, dict[str, Any], int]] = {
    "a small result of a shuffle": ("select id % 7 as k, count(*) n from range(1000) group by 1", {}, 1),
    "a file for each part": ("select id % 3 as k, id from range(1000)", {"partition": ("k",)}, 3),
    "sorted": ("select id % 7 as k, count(*) n from range(1000) group by 1", {"sort": ("k desc",)}, 1),
}


@pytest.mark.parametrize(("sql", "options", "expected"), FILES.values(), ids=FILES)
def test_how_many_files_are_written_for(context: TaskContext, sql: str, options: dict[str, Any], expected: int) -> None:
    context.session.conf.set("spark.sql.shuffle.partitions", "16")
    written = write(context, context.session.sql(sql), options=options)
    assert files_of(context, written.location) == expected


UNREADABLE = {
    "no condition": ("id", "can't be read"),
    "an aggregate": ("max(id) > 1", "can't be read"),
    "a subquery": ("id in (select 1)", "can't be read"),
    "an unknown function": ("postive(id)", "can't be read"),
    "an unknown column": ("dya is not null", "names `dya`, which is no column; close: `day`"),
}


@pytest.mark.parametrize(("condition", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_check_that_spark_cannot_read(context: TaskContext, condition: str, text: str) -> None:
    with pytest.raises(Mistake) as caught:
        write(context, frame(context, ORDERS, (1, "a")), checks=[row("id > 0"), row(condition, line=33)])
    assert caught.value.code == "CHECK_INVALID" and caught.value.at == "flows/made.py:33" and text in caught.value.what
    assert slots.list_changes(context.store.db, context.slot) == ()


def test_the_same_rows_again_keep_the_version(context: TaskContext) -> None:
    first = replace_all_rows(context, task_with(), frame(context, ORDERS, (1, "a"), (2, "b")), None)
    again = replace_all_rows(context, task_with(), frame(context, ORDERS, (2, "b"), (1, "a")), first.head)
    assert again.head == first.head and again.rows == 2
    assert slots.read_location(context.store.db, context.slot, TABLE) == first.head.location
    parted = replace_all_rows(
        context, task_with(partition=("day",)), frame(context, ORDERS, (2, "b"), (1, "a")), first.head
    )
    assert parted.head.content == first.head.content and parted.head.location != first.head.location


def test_rows_that_came_are_appended(context: TaskContext) -> None:
    first = replace_all_rows(context, task_with(), frame(context, ORDERS, (1, "a")), None)
    more = apply_row_changes(
        context, task_with(), frame(context, ORDERS, (2, "b")), None, BaseVersion(first.head, first.tally)
    )
    whole = replace_all_rows(context, task_with(), frame(context, ORDERS, (1, "a"), (2, "b")), None)
    assert (more.head.content, more.rows, more.written_rows) == (whole.head.content, 2, 1)
    none = apply_row_changes(context, task_with(), frame(context, ORDERS), None, BaseVersion(more.head, more.tally))
    assert none.head == more.head
    with pytest.raises(SchemaMismatch):
        apply_row_changes(
            context,
            task_with(),
            frame(context, "id long, day string, n int", (3, "c", 1)),
            None,
            BaseVersion(more.head, more.tally),
        )


def test_rows_that_went_are_removed_by_key(context: TaskContext) -> None:
    task = task_with(key=("id", "day"))
    first = replace_all_rows(context, task, frame(context, ORDERS, (1, "a"), (1, None), (2, "b"), (3, "c")), None)
    gone = frame(context, ORDERS, (1, None), (2, "b"), (2, "b"), (9, "z"))
    more = apply_row_changes(
        context, task, frame(context, ORDERS, (2, "x")), gone, BaseVersion(first.head, first.tally)
    )
    assert rows_of(context, more.head.location) == [(1, "a"), (2, "x"), (3, "c")]
    assert more.head.content == more.head.location and more.tally is None and more.rows == 3
    check_descent(context.store, first.head.location, more.head.location, context.run)
    same = apply_row_changes(
        context, task, frame(context, ORDERS), frame(context, ORDERS, (7, "a")), BaseVersion(first.head, first.tally)
    )
    assert same.head == first.head

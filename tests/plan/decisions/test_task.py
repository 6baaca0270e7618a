"""What is decided for one task whose inputs are there, and the reason that a person reads."""

import pytest

from runnel.errors import Mistake
from runnel.model.change_size import ChangeSize, VersionSize
from runnel.model.table_version import TableVersion
from tests.plan.factories import Known, decided, head, name, task

PLAIN = task("dws.day", "ods.orders")
ROWS = task("dws.day", "ods.orders", rowwise=True)
KEYED = task("dws.day", "ods.orders", rowwise=True, key=("order_id", "line"))
BIG = VersionSize(rows=10_000, bytes=1_000_000, files=10)


def once(made, **options) -> Known:
    """Return facts in which a task was computed."""
    return Known().has("ods.orders", size=BIG).computed(made, **options)


def test_not_computed_yet():
    step = decided(PLAIN, Known().has("ods.orders", size=BIG))
    assert (step.action, step.reason) == ("full", "not computed yet")
    assert (step.rows, step.bytes) == (10_000, 1_000_000)
    assert step.key and step.head is None


def test_nothing_changed():
    step = decided(PLAIN, once(PLAIN))
    assert (step.action, step.reason) == ("skip", "nothing changed")
    assert step.head == head("dws.day")
    assert step.existing_result and step.existing_result.key == step.key


REUSED = {
    "computed on this branch": ({"run": "r7"}, "known since run r7"),
    "computed on another": ({"run": "r7", "branch": "dev"}, "known since run r7 on branch dev"),
}


@pytest.mark.parametrize(("made", "reason"), REUSED.values(), ids=REUSED)
def test_reuse(made, reason):
    """Data A, then B, then A again."""
    facts = once(PLAIN, **made).has("ods.orders", "2").computed(PLAIN, "other").has("ods.orders", "1")
    step = decided(PLAIN, facts)
    assert (step.action, step.reason) == ("reuse", reason)
    assert step.head == head("dws.day", "1")


def test_reuse_where_the_table_is_not_there():
    step = decided(PLAIN, once(PLAIN, publish=False))
    assert (step.action, step.reason) == ("reuse", "known since run r1")


def test_reuse_undoes_a_change_from_outside_and_says_so():
    step = decided(PLAIN, once(PLAIN).has("dws.day", "strange"))
    assert (step.action, step.reason) == ("reuse", "dws.day was changed outside Runnel; known since run r1")


def test_changed_outside_with_an_unknown_result():
    step = decided(PLAIN, once(PLAIN).has("dws.day", "strange").has("ods.orders", "2"))
    assert (step.action, step.reason) == ("full", "dws.day was changed outside Runnel")


def test_the_code_changed():
    step = decided(PLAIN, once(PLAIN).moved("ods.orders", rows_added=5, files_added=1), code="b")
    assert (step.action, step.base) == ("full", None)
    assert step.reason == "its code changed at flows/shop.py:31"


def test_the_code_changed_back():
    step = decided(PLAIN, once(PLAIN).computed(PLAIN, "other", code="b", run="r2"))
    assert (step.action, step.reason) == ("reuse", "known since run r1")


def test_volatile_is_never_skipped():
    made = task("dws.day", "ods.orders", volatile=True)
    step = decided(made, once(made))
    assert (step.action, step.reason) == ("full", "volatile: never skipped")


def test_full_refresh():
    step = decided(PLAIN, once(PLAIN), full_refresh=True)
    assert (step.action, step.reason, step.rows) == ("full", "requested by --full-refresh", 10_000)


def test_a_forced_task_looks_nothing_up():
    facts = once(PLAIN)
    decided(PLAIN, facts, full_refresh=True)
    assert facts.asked == []


ADDED = {"rows_added": 1204, "files_added": 2, "bytes_added": 9000}
LOST = {"rows_removed": 3, "files_removed": 1, "bytes_removed": 70}
GAINED = "ods.orders gained 1,204 rows in 2 files"
BOTH = "ods.orders gained up to 1,204 rows in 2 files and lost up to 3 rows in 1 file"
NO_KEY = "without a key, by all values of a row"
GONE = "the version of ods.orders last used is gone (retention)"
MOVES = {
    "plain: rows added": (PLAIN, ADDED, "full", GAINED),
    "plain: rows lost": (PLAIN, LOST, "full", "ods.orders lost 3 rows in 1 file"),
    "plain: version gone": (PLAIN, {"is_known": False}, "full", GONE),
    "rowwise: rows added": (ROWS, ADDED, "rows", GAINED),
    "rowwise: one row": (ROWS, {"rows_added": 1, "files_added": 1}, "rows", "ods.orders gained 1 row in 1 file"),
    "rowwise: rows lost": (ROWS, LOST, "rows", f"ods.orders lost 3 rows in 1 file; {NO_KEY}"),
    "rowwise: both": (ROWS, ADDED | LOST, "rows", f"{BOTH}; {NO_KEY}"),
    "rowwise: many rows lost": (
        ROWS,
        {"rows_removed": 2_001, "files_removed": 1},
        "full",
        "ods.orders lost 2,001 rows in 1 file, and the task has no key",
    ),
    "rowwise: version gone": (ROWS, {"is_known": False}, "full", GONE),
    "rowwise: deletes": (ROWS, {"deletes": True}, "full", "ods.orders had rows deleted in place"),
    "rowwise: rows and a column": (
        ROWS,
        ADDED | {"columns_added": ("note",)},
        "full",
        "ods.orders gained the column `note` and gained 1,204 rows in 2 files",
    ),
    "rowwise: another table of that name": (
        ROWS,
        {"columns_changed": True, "is_recreated": True},
        "full",
        "ods.orders was created again",
    ),
    "rowwise: columns changed": (ROWS, {"columns_changed": True}, "full", "ods.orders changed its columns"),
    "rowwise: more than there is": (
        ROWS,
        {"rows_added": 20_000, "files_added": 1},
        "full",
        "ods.orders gained 20,000 rows in 1 file; that is more than the 10,000 rows to read in full",
    ),
    "keyed: rows added": (KEYED, ADDED, "rows", GAINED),
    "keyed: rows lost": (KEYED, LOST, "rows", "ods.orders lost 3 rows in 1 file; by key order_id, line"),
    "keyed: both": (KEYED, ADDED | LOST, "rows", f"{BOTH}; by key order_id, line"),
    "keyed: deletes": (
        KEYED,
        LOST | {"deletes": True},
        "full",
        "ods.orders lost 3 rows in 1 file and had rows deleted in place",
    ),
}


@pytest.mark.parametrize(("made", "movement", "action", "reason"), MOVES.values(), ids=MOVES)
def test_an_input_moved(made, movement, action, reason):
    step = decided(made, once(made).moved("ods.orders", **movement))
    assert (step.action, step.reason, step.analyse) == (action, reason, False)
    if action == "rows":
        assert step.base == once(made).kept[0]
        assert step.changed == (name("ods.orders"),)
        assert step.rows == movement.get("rows_added", 0) + movement.get("rows_removed", 0)
        assert step.bytes == movement.get("bytes_added", 0) + movement.get("bytes_removed", 0)
    else:
        assert (step.rows, step.bytes) == (10_000, 1_000_000)


ANALYSED = {
    "a column": ({"columns_added": ("note",)}, "ods.orders gained the column `note`"),
    "two columns": ({"columns_added": ("note", "tip")}, "ods.orders gained the columns `note` and `tip`"),
    "nothing that counts": ({}, "ods.orders has a new version of the same rows"),
}


@pytest.mark.parametrize("made", [PLAIN, ROWS], ids=["plain", "rowwise"])
@pytest.mark.parametrize(("movement", "reason"), ANALYSED.values(), ids=ANALYSED)
def test_no_row_moved(made, movement, reason):
    step = decided(made, once(made).moved("ods.orders", **movement))
    assert (step.action, step.reason, step.analyse) == ("full", reason, True)
    assert step.base is not None
    assert step.changed == (name("ods.orders"),)


def several(number: int, **options):
    return task("dws.day", *(f"ods.t{at}" for at in range(number)), **options)


def test_several_inputs_moved():
    made, facts = several(5, rowwise=True), Known()
    for at in range(5):
        facts.has(f"ods.t{at}", size=BIG)
    facts.computed(made)
    for at in range(5):
        facts.moved(f"ods.t{at}", rows_added=at, files_added=1)
    step = decided(made, facts)
    assert step.action == "rows"
    assert step.reason == (
        "ods.t0 gained 0 rows in 1 file; ods.t1 gained 1 row in 1 file; ods.t2 gained 2 rows in 1 file; "
        "and 2 more inputs changed"
    )
    assert len(step.changed) == 5


def test_a_new_column_beside_new_rows_is_not_analysed():
    made = several(2)
    facts = Known().has("ods.t0").has("ods.t1").computed(made)
    facts.moved("ods.t0", columns_added=("note",)).moved("ods.t1", rows_added=2, files_added=1)
    step = decided(made, facts)
    assert (step.action, step.analyse) == ("full", False)
    assert step.reason == "ods.t0 gained the column `note`; ods.t1 gained 2 rows in 1 file"


def test_only_changed_inputs_are_looked_at():
    made = several(2, rowwise=True)
    facts = Known().has("ods.t0").has("ods.t1").computed(made).moved("ods.t1", rows_added=2, files_added=1)
    assert decided(made, facts).changed == (name("ods.t1"),)


def test_a_size_that_is_not_known():
    step = decided(PLAIN, Known().has("ods.orders"))
    assert (step.rows, step.bytes) == (None, None)


def test_a_task_that_reads_nothing():
    made = task("dws.days")
    facts = Known()
    assert decided(made, facts).reason == "not computed yet"
    assert decided(made, facts.computed(made)).action == "skip"


def test_an_input_that_does_not_exist():
    with pytest.raises(Mistake, match=r"dws.day reads `ods.orders`, which does not exist yet") as caught:
        decided(PLAIN, Known())
    assert (caught.value.code, caught.value.at) == ("PLAN_INPUT_MISSING", "flows/shop.py:12")


def left_by_a_failed_run(**movement: int) -> Known:
    """Return facts with a published result, and a newer one of a run that failed; then the input changed again."""
    facts = once(ROWS).has("ods.orders", "2").computed(ROWS, "other", run="r2", publish=False).has("ods.orders", "3")
    facts.sizes[name("ods.orders")] = BIG
    facts.moves_between[head("ods.orders", "1").location, head("ods.orders", "3").location] = ChangeSize(
        rows_added=20, files_added=2
    )
    facts.moves_between[head("ods.orders", "2").location, head("ods.orders", "3").location] = ChangeSize(**movement)
    return facts


LEFT = {
    "less since the failed run": ({"rows_added": 10, "files_added": 1}, "ods.orders gained 20 rows in 2 files"),
    "as much since": ({"rows_added": 20, "files_added": 2}, "ods.orders gained 20 rows in 2 files"),
    "its input is gone": ({"is_known": False}, "ods.orders gained 20 rows in 2 files"),
    "its input was read into other files": (
        {"rows_added": 20, "files_added": 2, "rows_removed": 10, "files_removed": 1},
        "ods.orders gained 20 rows in 2 files",
    ),
}


@pytest.mark.parametrize(("movement", "reason"), LEFT.values(), ids=LEFT)
def test_the_result_that_the_table_holds_comes_first(movement, reason):
    step = decided(ROWS, left_by_a_failed_run(**movement))
    assert (step.action, step.reason, step.has_detached_base) == ("rows", reason, False)


def test_what_a_failed_run_left_is_continued_if_the_result_that_the_table_holds_cannot_be():
    facts = left_by_a_failed_run(rows_added=10, files_added=1)
    facts.moves_between[head("ods.orders", "1").location, head("ods.orders", "3").location] = ChangeSize(is_known=False)
    step = decided(ROWS, facts)
    reason = "ods.orders gained 10 rows in 1 file; starting from the result of run r2, which was not published"
    assert (step.action, step.reason, step.has_detached_base) == ("rows", reason, True)


def test_a_result_of_other_code_is_no_start():
    facts = Known().has("ods.orders", size=BIG).computed(ROWS, code="b", publish=False).has("ods.orders", "2")
    assert (decided(ROWS, facts).action, decided(ROWS, facts).reason) == ("full", "not computed yet")


def test_a_version_of_the_same_content_is_as_good_an_input():
    facts = once(ROWS).has("ods.orders", "2")
    copy = TableVersion("ods.orders/copy.json", "1")
    facts.moves[name("ods.orders")] = ChangeSize(rows_added=90, files_added=9, rows_removed=80, files_removed=8)
    facts.moves_between[copy.location, head("ods.orders", "2").location] = ChangeSize(rows_added=10, files_added=1)
    facts.others[name("ods.orders")] = (copy,)
    step = decided(ROWS, facts)
    assert (step.action, step.reason) == ("rows", "ods.orders gained 10 rows in 1 file")
    assert step.base and step.base.inputs[name("ods.orders")] == copy

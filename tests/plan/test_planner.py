"""Plans of whole flows: what is decided, what is only expected, and how little is asked for it."""

import pytest

from runnel.errors import Mistake
from runnel.model.change_size import VersionSize
from tests.plan.factories import Known, files, flow, head, lines, manual, name, planned, task

ORDERS = files("ods.orders")
CLEAN = task("dwd.orders", "ods.orders", rowwise=True)
DAY = task("dws.day", "dwd.orders")
TOP = task("ads.top", "dws.day")
SHOP = flow(ORDERS, CLEAN, DAY, TOP)


def done(**options) -> Known:
    """Return facts in which the whole shop was computed and nothing changed since."""
    facts = Known().has("ods.orders", size=VersionSize(100, 1000, 1))
    return facts.computed(CLEAN, **options).computed(DAY, **options).computed(TOP, **options)


def test_nothing_changed():
    plan = planned(SHOP, done())
    assert lines(plan) == [
        "ods.orders skip: no new files",
        "dwd.orders skip: nothing changed",
        "dws.day skip: nothing changed",
        "ads.top skip: nothing changed",
    ]
    assert (plan.jvm, plan.work, plan.branch, plan.commit) == (False, (), "main", "c0ffee")


def test_the_first_plan():
    plan = planned(SHOP, Known().arrives("ods.orders", new=3, bytes=4096, content="files:1"))
    assert lines(plan) == [
        "ods.orders ingest: 3 new files",
        "dwd.orders ~full: not computed yet",
        "dws.day ~full: not computed yet",
        "ads.top ~full: not computed yet",
    ]
    assert plan.jvm
    assert plan.steps[0].bytes == 4096
    assert plan.steps[0].head is not None and plan.steps[0].head.location == ""
    assert [step.needs for step in plan.steps] == [
        (),
        *((name(text),) for text in ("ods.orders", "dwd.orders", "dws.day")),
    ]
    assert all(step.key is None and step.head is None for step in plan.steps[1:])


def test_a_new_file_goes_through_all_layers():
    plan = planned(SHOP, done().arrives("ods.orders", new=1, content="2"))
    assert lines(plan) == [
        "ods.orders ingest: 1 new file",
        "dwd.orders ~rows: ods.orders gets 1 new file",
        "dws.day ~full: dwd.orders is computed",
        "ads.top ~full: dws.day is computed",
    ]
    assert plan.steps[1].base == done().kept[0]


SOURCES = {
    "new files": ({"new": 2}, "ingest: 2 new files", "rows: ods.orders gets 2 new files"),
    "everything": (
        {"new": 2, "changed": 1, "removed": 1},
        "ingest: 2 new files, 1 changed, 1 gone",
        "full: ods.orders gets 2 new files, 1 changed, 1 gone",
    ),
    "a changed file": ({"changed": 1}, "ingest: 1 changed file", "full: ods.orders gets 1 changed file"),
    "a file gone": ({"removed": 1}, "ingest: 1 file gone", "full: ods.orders: 1 file gone"),
}


@pytest.mark.parametrize(("arrivals", "source", "reader"), SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("content", [None, "2"], ids=["content unknown", "content predicted"])
def test_what_arrives(arrivals, source, reader, content):
    plan = planned(SHOP, done().arrives("ods.orders", content=content, **arrivals), "ods.orders", "dwd.orders")
    assert lines(plan) == [f"ods.orders {source}", f"dwd.orders ~{reader}"]


def test_a_changed_file_by_key():
    keyed = task("dwd.orders", "ods.orders", rowwise=True, key=("id",))
    facts = Known().has("ods.orders").computed(keyed).arrives("ods.orders", changed=1)
    assert lines(planned(flow(ORDERS, keyed), facts))[1] == "dwd.orders ~rows: ods.orders gets 1 changed file"


def test_data_that_comes_back_is_recognised_before_anything_is_read():
    """A, then B, then A again: the source's version and all results are known."""
    facts = done().has("ods.orders", "2")
    facts.computed(CLEAN, "2", run="r2").computed(DAY, "2", run="r2").computed(TOP, "2", run="r2")
    facts.arrives("ods.orders", changed=1, content="1", existing_version=head("ods.orders", "1"))
    plan = planned(SHOP, facts)
    assert lines(plan) == [
        "ods.orders reuse: 1 changed file, already ingested",
        "dwd.orders reuse: known since run r1",
        "dws.day reuse: known since run r1",
        "ads.top reuse: known since run r1",
    ]
    assert not plan.jvm


def test_results_of_predicted_contents_are_used_but_decided_again():
    facts = done().has("ods.orders", "2").computed(CLEAN, "2").arrives("ods.orders", changed=1, content="1")
    plan = planned(SHOP, facts)
    assert lines(plan) == [
        "ods.orders ingest: 1 changed file",
        "dwd.orders ~reuse: known since run r1",
        "dws.day ~skip: nothing changed",
        "ads.top ~skip: nothing changed",
    ]
    assert not plan.jvm


def test_a_renamed_file():
    facts = done().arrives("ods.orders", new=1, content="1", existing_version=head("ods.orders", "1"))
    assert lines(planned(SHOP, facts))[:2] == [
        "ods.orders reuse: 1 new file, with the rows that it already has",
        "dwd.orders skip: nothing changed",
    ]


def test_a_source_that_lost_its_files_keeps_its_rows():
    facts = done().arrives("ods.orders", problem="no file matches data/orders/*.csv")
    assert lines(planned(SHOP, facts))[0] == "ods.orders skip: no file matches data/orders/*.csv; its rows stay"


MISSING = {
    "nothing new": ({"missing_files": 1}, 'skip: no new files; 1 file is gone; its rows stay (removed="keep")'),
    "a new file": (
        {"new": 1, "missing_files": 2},
        'ingest: 1 new file; 2 files are gone; their rows stay (removed="keep")',
    ),
}


@pytest.mark.parametrize(("changes", "expected"), MISSING.values(), ids=MISSING)
def test_files_that_are_gone_are_mentioned(changes: dict[str, int], expected: str):
    facts = done().arrives("ods.orders", **changes)
    assert lines(planned(SHOP, facts))[0] == f"ods.orders {expected}"


def test_a_source_without_files():
    facts = Known().arrives("ods.orders", problem="no file matches data/orders/*.csv")
    with pytest.raises(Mistake) as caught:
        planned(SHOP, facts)
    assert str(caught.value) == (
        "SOURCE_NO_FILES: ods.orders has nothing to read: no file matches data/orders/*.csv\n"
        "  at flows/shop.py:3\n"
        "  fix: put a file there, or correct the glob, which is relative to the project's folder; "
        'if there may be no file yet, rn.files(..., may_be_empty=True, schema="order_id long, day date") '
        "with your columns creates a table without rows"
    )


def test_changed_code_in_the_middle():
    plan = planned(SHOP, done(), edited={"dws.day": "b"})
    assert lines(plan) == [
        "ods.orders skip: no new files",
        "dwd.orders skip: nothing changed",
        "dws.day full: its code changed at flows/shop.py:31",
        "ads.top ~full: dws.day is computed",
    ]


def test_a_new_column():
    plan = planned(SHOP, done().moved("ods.orders", columns_added=("note",)))
    assert lines(plan) == [
        "ods.orders skip: no new files",
        "dwd.orders full?: ods.orders gained the column `note`",
        "dws.day ~full: dwd.orders may be computed",
        "ads.top ~full: dws.day is computed",
    ]
    assert plan.jvm


def test_rows_that_came_through_another_branch():
    plan = planned(SHOP, done().moved("ods.orders", rows_added=5, files_added=1))
    assert lines(plan)[1] == "dwd.orders rows: ods.orders gained 5 rows in 1 file"
    assert plan.steps[1].key is not None


def test_rows_below_rows():
    below = task("dws.day", "dwd.orders", rowwise=True)
    facts = Known().has("ods.orders").computed(CLEAN).computed(below).arrives("ods.orders", new=1)
    assert lines(planned(flow(ORDERS, CLEAN, below), facts))[2] == "dws.day ~rows: dwd.orders is computed"
    assert lines(planned(flow(ORDERS, CLEAN, below), facts, full_refresh=True))[1:] == [
        "dwd.orders ~full: requested by --full-refresh",
        "dws.day ~full: requested by --full-refresh",
    ]


def test_an_expected_step_names_the_inputs_that_are_there_too():
    both = task("dws.both", "ods.orders", "ods.sellers", rowwise=True)
    facts = Known().has("ods.orders").has("ods.sellers").computed(both)
    facts.arrives("ods.orders", new=1).moved("ods.sellers", rows_added=2, files_added=1)
    plan = planned(flow(ORDERS, manual("ods.sellers"), both), facts)
    assert lines(plan) == [
        "ods.orders ingest: 1 new file",
        "ods.sellers skip: filled by hand",
        "dws.both ~full: ods.orders gets 1 new file; ods.sellers gained 2 rows in 1 file",
    ]


def test_a_diamond_is_one_step_for_each_table():
    project = flow(ORDERS, task("dws.b", "ods.orders"), task("dws.c", "ods.orders"), task("ads.d", "dws.b", "dws.c"))
    plan = planned(project, Known().arrives("ods.orders", new=1))
    assert [str(step.table) for step in plan.steps] == ["ods.orders", "dws.b", "dws.c", "ads.d"]
    assert plan.steps[3].needs == (name("dws.b"), name("dws.c"))


def test_full_refresh_reads_no_source_again():
    plan = planned(SHOP, done(), full_refresh=True)
    assert lines(plan) == [
        "ods.orders skip: no new files",
        "dwd.orders full: requested by --full-refresh",
        "dws.day ~full: requested by --full-refresh",
        "ads.top ~full: requested by --full-refresh",
    ]


def test_only_what_is_selected_is_computed():
    """The source has a new file, but it is read as it stands."""
    facts = done().arrives("ods.orders", new=1)
    assert lines(planned(SHOP, facts, "dwd.orders+")) == [
        "dwd.orders skip: nothing changed",
        "dws.day skip: nothing changed",
        "ads.top skip: nothing changed",
    ]
    assert [str(step.table) for step in planned(SHOP, facts, exclude=("ods.*",)).steps] == [
        "dwd.orders",
        "dws.day",
        "ads.top",
    ]


MISSING = {
    "a manual source": (
        flow(manual("ods.rates"), task("dws.x", "ods.rates")),
        (),
        "dws.x reads ods.rates, which does not exist yet: people fill it by hand",
        "runnel load ods.rates FILE",
    ),
    "a task that is not selected": (
        SHOP,
        ("ads.top",),
        "ads.top reads dws.day, which does not exist yet and is not selected",
        "select it too: -s dws.day, or -s +ads.top; or exclude less",
    ),
    "a source that is not selected": (
        SHOP,
        ("dwd.orders+",),
        "dwd.orders reads ods.orders, which does not exist yet and is not selected",
        "select it too: -s ods.orders, or -s +dwd.orders; or exclude less",
    ),
    "a source whose files were read and reverted": (
        SHOP,
        (),
        "dwd.orders reads ods.orders, which does not exist yet",
        "runnel rewind ods.orders --to REF reads its files again",
    ),
}


@pytest.mark.parametrize(("project", "include", "what", "fix"), MISSING.values(), ids=MISSING)
def test_missing_inputs(project, include, what, fix):
    with pytest.raises(Mistake) as caught:
        planned(project, Known(), *include)
    mistake = caught.value
    assert (mistake.code, mistake.what, mistake.at, mistake.fix) == (
        "PLAN_INPUT_MISSING",
        what,
        "flows/shop.py:12",
        fix,
    )


def test_all_missing_inputs_are_said_at_once():
    project = flow(manual("ods.a"), manual("ods.b"), task("dws.x", "ods.a", "ods.b"), task("dws.y", "dws.x"))
    with pytest.raises(Mistake) as caught:
        planned(project, Known())
    text = str(caught.value)
    assert "runnel load ods.a FILE" in text
    assert "runnel load ods.b FILE" in text
    assert "dws.y" not in text


def test_an_empty_manual_source_that_nobody_reads():
    assert lines(planned(flow(manual("ods.a")), Known())) == ["ods.a skip: filled by hand; nothing in it yet"]


def test_volatile_tasks_are_computed_and_what_follows_is_expected():
    now = task("ods.now", volatile=True)
    below = task("dws.x", "ods.now")
    plan = planned(flow(now, below), Known().computed(now).computed(below))
    assert lines(plan) == ["ods.now full: volatile: never skipped", "dws.x ~full: ods.now is computed"]


def chain(number: int):
    made = [task("l.t0", "ods.orders"), *(task(f"l.t{at}", f"l.t{at - 1}") for at in range(1, number))]
    facts = Known().has("ods.orders")
    for each in made:
        facts.computed(each)
    return flow(ORDERS, *made), facts


def test_one_question_for_a_chain_that_skips():
    project, facts = chain(50)
    assert not planned(project, facts).work
    assert facts.asked == [50]


def test_questions_only_for_levels_that_changed():
    wide = [task(f"l.t{at}", "ods.orders") for at in range(30)]
    facts = Known().has("ods.orders")
    for each in wide:
        facts.computed(each).has("ods.orders", "2").computed(each, "2").has("ods.orders", "1")
    facts.arrives("ods.orders", changed=1, content="1", existing_version=head("ods.orders", "1")).has("ods.orders", "2")
    assert {step.action for step in planned(flow(ORDERS, *wide), facts).steps} == {"reuse"}
    assert facts.asked == [30, 30]


def test_fingerprints_are_taken_once_and_only_of_what_is_selected():
    from runnel.plan.planner import PlanScope, make_plan
    from tests.plan.factories import mark

    taken = []

    def take(each):
        taken.append(str(each.table))
        return mark(each)

    chosen = frozenset({name("dwd.orders"), name("dws.day")})
    make_plan(SHOP, done(), take, branch="main", commit="c", scope=PlanScope(chosen))
    assert taken == ["dwd.orders", "dws.day"]

"""What is no stream, though it is declared as one: a clear message, and no trace."""

import pytest

from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.lake.flow_state import streams
from tests.run.stream.click_files import Clicks

TASK = """
@rn.task("dwd.x", stream="clicks"{options})
def x(clicks, spark):
    {body}
"""
RETURNS = "return clicks"
CASES = {
    "collects": ("", "clicks.collect(); return clicks", "STREAM_COMPUTED", "dwd.x"),
    "counts": ("", "return spark.createDataFrame([(clicks.count(),)], 'n long')", "STREAM_COMPUTED", "dwd.x"),
    "returns another frame": ("", "return spark.range(3)", "STREAM_NOT_ONE", "ods.clicks"),
    "sorts": ("", "return clicks.orderBy('id')", "STREAM_UNSUPPORTED", "fix: remove the order"),
    "needs a watermark": (
        "",
        "return clicks.groupBy('page').count()",
        "STREAM_UNSUPPORTED",
        "task `dwd.x` groups the rows of a stream, but without a watermark no group is ever complete\n"
        '  at flows/flow.py:6\n  fix: write output="update" with key= naming the columns that it groups by: '
        'each batch then updates its groups; or write watermark=("ts", "10 minutes") and group by window(ts, ...): '
        "each group is then appended once",
    ),
    "counts distinct values": (
        ', output="update", key="page"',
        "return clicks.groupBy('page').agg(F.countDistinct('user').alias('users'))",
        "STREAM_UNSUPPORTED",
        "fix: write size(collect_set(x)), which keeps all of them, or approx_count_distinct(x)",
    ),
    "numbers rows": (
        "",
        "return clicks.selectExpr('*', 'row_number() over (partition by page order by ts) as n')",
        "STREAM_UNSUPPORTED",
        "uses a window function over the rows of a stream, such as row_number()\n"
        "  at flows/flow.py:6\n"
        '  fix: write groupBy(...) with max_by or min_by and output="update" for the latest row of each key; '
        "otherwise do that in a second task, which reads the table of this one without stream=",
    ),
    "joins two streams with update": (
        ', output="update", key="id"',
        "return clicks.join(clicks.select(F.col('id').alias('other')), F.expr('id = other'))",
        "STREAM_UNSUPPORTED",
        'fix: remove output="update" and key= from the join, and do the rest in a second task',
    ),
    "wrong watermark": (', watermark=("tss", "1 minute")', RETURNS, "STREAM_WATERMARK", "close: `ts`"),
    "watermark of no time": (', watermark=("page", "1 minute")', RETURNS, "STREAM_WATERMARK", "`page`"),
}


@pytest.mark.parametrize(("options", "body", "code", "said"), CASES.values(), ids=CASES)
def test_a_task_that_is_no_stream(clicks: Clicks, options: str, body: str, code: str, said: str) -> None:
    clicks.streams(TASK.format(options=options, body=body))
    clicks.click((1, "/a", "ada", "10:00:00"))
    error = clicks.run().errors[0]
    assert (error.code, said in str(error)) == (code, True), error
    assert "JVM" not in str(error)
    with clicks.open() as lake:
        assert set(lake.tables()) == {"ods.clicks"}
        assert lake.store.db.read(streams.list_streams) == {}


def test_update_needs_a_key(clicks: Clicks) -> None:
    clicks.streams(TASK.format(options=', output="update"', body=RETURNS))
    with pytest.raises(ProjectMistakes, match='`output="update"` needs the columns that identify a row'):
        clicks.run()


def test_a_table_that_is_not_there(clicks: Clicks) -> None:
    clicks.flow('rn.source("ods.clicks", rn.manual())\n' + TASK.format(options="", body=RETURNS), orders=None)
    with pytest.raises(Exception, match=r"ods\.clicks"):
        raise clicks.run("dwd.x").errors[0]

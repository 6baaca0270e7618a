"""Describe what Spark can't do in a stream, and what to write instead. Pure."""

import re
from dataclasses import dataclass

_SECOND_TASK = "do that in a second task, which reads the table of this one"


@dataclass(frozen=True)
class StreamLimit:
    """An operation that a stream can't do: how Spark reports it, what the task does, and what to write instead."""

    sign: re.Pattern[str]
    problem: str
    fix: str


_LIMITS = tuple(
    StreamLimit(re.compile(sign), problem, fix)
    for sign, problem, fix in (
        (
            "streaming aggregations without watermark",
            "groups the rows of a stream, but without a watermark no group is ever complete",
            'write output="update" with key= naming the columns that it groups by: each batch then updates its groups; '
            'or write watermark=("ts", "10 minutes") and group by window(ts, ...): each group is then appended once',
        ),
        (
            "Distinct aggregations are not supported",
            "counts distinct values of a stream, which Spark can't do exactly without keeping all of them",
            "write size(collect_set(x)), which keeps all of them, or approx_count_distinct(x)",
        ),
        (
            "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING",
            "uses a window function over the rows of a stream, such as row_number()",
            'write groupBy(...) with max_by or min_by and output="update" for the latest row of each key; '
            f"otherwise {_SECOND_TASK} without stream=",
        ),
        (
            "not supported in Update output mode, only in Append output mode",
            'joins two streams, which is not possible with output="update"',
            'remove output="update" and key= from the join, and do the rest in a second task, '
            "which streams from the table of this one",
        ),
        (
            r"Stream-stream \w+ join .* without a watermark",
            "has an outer join of two streams without a watermark: no row is ever known to be without a match",
            "give both streams a watermark= and compare their times in the join, as in "
            "`a.ts between b.ts and b.ts + interval 1 hour`; or use an inner join",
        ),
        (
            "Detected pattern of possible 'correctness' issue",
            "groups, joins or deduplicates the rows of a stream twice, one after the other",
            "split it into two tasks: the second one streams from the table of the first",
        ),
        (
            "Sorting is not supported",
            "sorts the rows of a stream",
            "remove the order: sort the rows when you query them",
        ),
        ("Limits are not supported", "limits the number of rows of a stream", f"remove limit(...), or {_SECOND_TASK}"),
        ("Intersect of streaming", "intersects a stream", "write a left semi join"),
        ("Except on a streaming", "subtracts rows from a stream", "write a left anti join"),
        (r"streaming DataFrames?/Data[Ss]ets?", "does what Spark can't do in a stream: {spark}", _SECOND_TASK),
    )
)


def find_stream_limit(message: str) -> tuple[str, str] | None:
    """Return what a task does that a stream can't, and the fix, from Spark's message; None if it says something else.

    >>> find_stream_limit("Sorting is not supported on streaming DataFrames/Datasets, unless ...")
    ('sorts the rows of a stream', 'remove the order: sort the rows when you query them')
    """
    for limit in _LIMITS:
        if limit.sign.search(message):
            first_line = next((line for line in message.splitlines() if line.strip()), "")
            return limit.problem.format(spark=first_line.strip("; ")), limit.fix
    return None

"""The days of a backfill, and how many chunks it may have."""

import pytest

from runnel.errors import Mistake
from runnel.plan.date_range import MAX_CHUNKS, check_chunk_count, parse_date_range
from runnel.project.execution.backfill import build_backfill_request

WHOLE_CALENDAR = ("0001-01-01", "9999-12-31")


@pytest.mark.parametrize("chunk", ["1d", "364d", 1])
def test_too_many_chunks_are_refused_with_the_smallest_chunk_that_is_not(chunk: str | int) -> None:
    with pytest.raises(Mistake) as refused:
        build_backfill_request("dws.*", *WHOLE_CALENDAR, chunk=chunk)
    assert (refused.value.code, refused.value.fix) == (
        "BACKFILL_TOO_MANY_CHUNKS",
        "give a larger chunk, 366d or more, or fewer days",
    )


def test_as_many_chunks_as_are_allowed() -> None:
    check_chunk_count(parse_date_range("2000-01-01", "2027-05-18"), 1)
    assert len(parse_date_range("2000-01-01", "2027-05-18").chunks(1)) == MAX_CHUNKS
    with pytest.raises(Mistake, match="10,001 runs"):
        check_chunk_count(parse_date_range("2000-01-01", "2027-05-19"), 1)
    check_chunk_count(parse_date_range(*WHOLE_CALENDAR), None)
    check_chunk_count(parse_date_range(*WHOLE_CALENDAR), 366)

"""Share out the time of a step among its phases. Pure: gets segments of a clock, and the stages of Spark.

Spark reads, computes, checks rows and writes in one pass. Of such a pass, what comes before the first stage is
planning; a moment in which only stages run that bring rows to a shuffle is reading; what comes after the last stage,
when the files are made a version, is writing; everything else is computing, the writing of rows as they are computed
included.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from runnel.phase_timer import PASS, PHASES, WAITS, Segment
from runnel.run.metrics.spark_metrics import Stage


def shared(segments: Iterable[Segment], stages: Sequence[Stage]) -> tuple[Segment, ...]:
    """Return segments without passes: each is cut into its phases.

    >>> ran = [Stage(2, 5, input_rows=9), Stage(5, 6, shuffle_read_bytes=1)]
    >>> [(one.phase, one.seconds) for one in shared([Segment("pass", 0, 7)], ran)]
    [('plan', 2), ('read', 3), ('compute', 1), ('write', 1)]
    """
    return _joined(part for one in segments for part in (_cut(one, stages) if one.phase == PASS else (one,)))


def by_phase(segments: Iterable[Segment]) -> dict[str, float]:
    """Return the seconds of each phase as people see them; all kinds of waiting are one.

    >>> by_phase([Segment("spark", 0, 2), Segment("pause", 2, 3), Segment("plan", 3, 4)])
    {'wait': 3.0, 'plan': 1.0}
    """
    found = dict.fromkeys(PHASES, 0.0)
    for one in segments:
        found["wait" if one.phase in WAITS else one.phase] += one.seconds
    return {phase: round(seconds, 3) for phase, seconds in found.items() if seconds}


def waits(segments: Iterable[Segment]) -> dict[str, float]:
    """Return the seconds of each kind of waiting."""
    found: dict[str, float] = {}
    for one in segments:
        if one.phase in WAITS:
            found[one.phase] = round(found.get(one.phase, 0.0) + one.seconds, 3)
    return found


def _cut(whole: Segment, stages: Sequence[Stage]) -> tuple[Segment, ...]:
    """Return a pass cut where stages begin and end; times of Spark are in milliseconds, so they may stick out."""
    ran = [_within(whole, one) for one in stages if one.start < whole.end and one.end > whole.start]
    if not ran:
        return (Segment("compute", whole.start, whole.end),)
    edges = sorted({whole.start, whole.end, *(edge for start, end, _ in ran for edge in (start, end))})
    first, last = min(start for start, _, _ in ran), max(end for _, end, _ in ran)
    return tuple(
        Segment("plan" if end <= first else "write" if start >= last else _doing(start, end, ran), start, end)
        for start, end in itertools.pairwise(edges)
    )


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return segments with those of one phase that follow each other as one."""
    found: list[Segment] = []
    for one in segments:
        if found and found[-1].phase == one.phase:
            found[-1] = Segment(one.phase, found[-1].start, one.end)
        else:
            found.append(one)
    return tuple(found)


def _within(whole: Segment, stage: Stage) -> tuple[float, float, bool]:
    return max(stage.start, whole.start), min(stage.end, whole.end), stage.only_reads


def _doing(start: float, end: float, ran: Sequence[tuple[float, float, bool]]) -> str:
    reading = [reads for from_, to, reads in ran if from_ <= start and to >= end]
    return "read" if reading and all(reading) else "compute"


def total(timeline: Mapping[str, float], steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of each phase of a run: of its steps, and of itself. What steps wait for counts once.

    >>> total({"queue": 1.0, "plan": 0.5, "steps": 9.0, "publish": 0.1}, [{"wait": 5.0, "plan": 1.0, "read": 2.0}])
    {'wait': 1.0, 'plan': 1.5, 'read': 2.0, 'publish': 0.1}
    """
    found = dict.fromkeys(PHASES, 0.0)
    found["wait"] = timeline.get("queue", 0.0) + timeline.get("spark", 0.0)
    found["check"] = timeline.get("verify", 0.0)
    found |= {phase: timeline.get(phase, 0.0) for phase in ("plan", "publish")}
    for spent in steps:
        for phase, seconds in spent.items():
            if phase != "wait":
                found[phase] = found.get(phase, 0.0) + seconds
    return {phase: round(seconds, 3) for phase, seconds in found.items() if seconds}

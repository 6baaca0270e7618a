"""Split the time of a step into phases. Pure: gets the segments of a clock, and Spark's stages.

Spark reads, computes, checks rows and writes in one pass. In such a pass, the time before the first stage is planning;
the time in which only stages run that read rows for a shuffle is reading; the time after the last stage, when Iceberg
commits the files, is writing; everything else is computing, including the writing of rows while they are computed.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from runnel.phase_timer import PASS, PHASES, WAITS, PhaseSegment
from runnel.run.metrics.spark_metrics import StageMetrics


def split_passes(segments: Iterable[PhaseSegment], stages: Sequence[StageMetrics]) -> tuple[PhaseSegment, ...]:
    """Return the segments with each pass split into its phases.

    >>> stages = [StageMetrics(2, 5, input_rows=9), StageMetrics(5, 6, shuffle_read_bytes=1)]
    >>> [(segment.phase, segment.seconds) for segment in split_passes([PhaseSegment("pass", 0, 7)], stages)]
    [('plan', 2), ('read', 3), ('compute', 1), ('write', 1)]
    """
    return _merge_adjacent(
        piece
        for segment in segments
        for piece in (_split_pass(segment, stages) if segment.phase == PASS else (segment,))
    )


def sum_by_phase(segments: Iterable[PhaseSegment]) -> dict[str, float]:
    """Return the seconds of each phase that users see; all kinds of waiting count as `wait`.

    >>> sum_by_phase([PhaseSegment("spark", 0, 2), PhaseSegment("pause", 2, 3), PhaseSegment("plan", 3, 4)])
    {'wait': 3.0, 'plan': 1.0}
    """
    seconds_by_phase = dict.fromkeys(PHASES, 0.0)
    for segment in segments:
        seconds_by_phase["wait" if segment.phase in WAITS else segment.phase] += segment.seconds
    return {phase: round(seconds, 3) for phase, seconds in seconds_by_phase.items() if seconds}


def sum_waits(segments: Iterable[PhaseSegment]) -> dict[str, float]:
    """Return the seconds of each kind of waiting."""
    seconds_by_wait: dict[str, float] = {}
    for segment in segments:
        if segment.phase in WAITS:
            seconds_by_wait[segment.phase] = round(seconds_by_wait.get(segment.phase, 0.0) + segment.seconds, 3)
    return seconds_by_wait


def _split_pass(spark_pass: PhaseSegment, stages: Sequence[StageMetrics]) -> tuple[PhaseSegment, ...]:
    """Return a pass split at the starts and ends of stages, clipped to the pass: Spark rounds to milliseconds."""
    stage_spans = [
        _clip_stage(spark_pass, stage)
        for stage in stages
        if stage.start < spark_pass.end and stage.end > spark_pass.start
    ]
    if not stage_spans:
        return (PhaseSegment("compute", spark_pass.start, spark_pass.end),)
    edges = sorted(
        {spark_pass.start, spark_pass.end, *(edge for start, end, _ in stage_spans for edge in (start, end))}
    )
    first, last = min(start for start, _, _ in stage_spans), max(end for _, end, _ in stage_spans)
    return tuple(
        PhaseSegment(
            "plan" if end <= first else "write" if start >= last else _classify_interval(start, end, stage_spans),
            start,
            end,
        )
        for start, end in itertools.pairwise(edges)
    )


def _merge_adjacent(segments: Iterable[PhaseSegment]) -> tuple[PhaseSegment, ...]:
    """Return the segments with adjacent ones of the same phase merged."""
    merged: list[PhaseSegment] = []
    for segment in segments:
        if merged and merged[-1].phase == segment.phase:
            merged[-1] = PhaseSegment(segment.phase, merged[-1].start, segment.end)
        else:
            merged.append(segment)
    return tuple(merged)


def _clip_stage(spark_pass: PhaseSegment, stage: StageMetrics) -> tuple[float, float, bool]:
    return max(stage.start, spark_pass.start), min(stage.end, spark_pass.end), stage.only_reads


def _classify_interval(start: float, end: float, stage_spans: Sequence[tuple[float, float, bool]]) -> str:
    read_flags = [reads for from_, to, reads in stage_spans if from_ <= start and to >= end]
    return "read" if read_flags and all(read_flags) else "compute"


def sum_run_phases(timeline: Mapping[str, float], steps: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the seconds of each phase of a run: of its steps, and of the run itself.

    The waiting of steps is not summed: only the run's own waiting for the queue and Spark counts.

    >>> timeline = {"queue": 1.0, "plan": 0.5, "steps": 9.0, "publish": 0.1}
    >>> sum_run_phases(timeline, [{"wait": 5.0, "plan": 1.0, "read": 2.0}])
    {'wait': 1.0, 'plan': 1.5, 'read': 2.0, 'publish': 0.1}
    """
    seconds_by_phase = dict.fromkeys(PHASES, 0.0)
    seconds_by_phase["wait"] = timeline.get("queue", 0.0) + timeline.get("spark", 0.0)
    seconds_by_phase["check"] = timeline.get("verify", 0.0)
    seconds_by_phase |= {phase: timeline.get(phase, 0.0) for phase in ("plan", "publish")}
    for spent in steps:
        for phase, seconds in spent.items():
            if phase != "wait":
                seconds_by_phase[phase] = seconds_by_phase.get(phase, 0.0) + seconds
    return {phase: round(seconds, 3) for phase, seconds in seconds_by_phase.items() if seconds}

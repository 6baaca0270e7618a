"""The steps of an ingest or a load in units: inspect them, settle their types, write them.

Each step raises FilesUnreadable if files can't be read as it expected; then the driver starts again.
"""

from collections.abc import Callable, Sequence

from runnel.connect.files.file_patterns import CSV
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.ingest.units.file_unit import FileUnit
from runnel.connect.ingest.units.inspect_unit import (
    GroupInspector,
    UnitFacts,
    UnitGroup,
    UnitInspector,
    is_inspected_quickly,
    number_lines,
)
from runnel.connect.ingest.units.unit_reader import UnreadableReason
from runnel.connect.ingest.units.write_unit import MisfitCounter, UnitWriter, WrittenUnit
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.type_inference import MisfitCounts, describe_examples, settle_types
from runnel.lake.work_runner import ReportUnits, WorkRunner

_GROUPS_PER_TASK = 2
MakeReporter = Callable[[str], ReportUnits]
"""Makes the callback for the progress of an activity."""


class FilesUnreadable(Exception):
    """Files turned out to be unreadable; everything is settled again without them."""

    def __init__(self, reasons: Sequence[UnreadableReason]) -> None:
        super().__init__()
        self.reasons = reasons


def inspect_units(
    inspector: UnitInspector, units: Sequence[FileUnit], runner: WorkRunner, make_reporter: MakeReporter
) -> tuple[Sequence[FileUnit], Sequence[UnitFacts]]:
    """Return the units, with the lines before each split of a file, and their facts."""
    groups = _group_inspections(inspector, units, runner)
    grouped_facts = runner.run(GroupInspector(inspector), groups, make_reporter("inspecting"))
    facts = [unit_facts for group_facts in grouped_facts for unit_facts in group_facts]
    _raise_unreadable([reason for unit_facts in facts for reason in unit_facts.unreadable])
    is_csv = inspector.context.build_request(()).format == CSV
    numbered_units, undivided = number_lines(units, facts, is_csv=is_csv)
    _raise_unreadable(undivided)
    return numbered_units, facts


def _group_inspections(inspector: UnitInspector, units: Sequence[FileUnit], runner: WorkRunner) -> list[UnitGroup]:
    """Return the units in a few groups for each parallel task, if only the start or the end of files is read."""
    format_name = inspector.context.build_request(()).format
    is_quick = all(is_inspected_quickly(unit, format_name) for unit in units)
    size = -(-len(units) // (_GROUPS_PER_TASK * runner.parallel_units)) if is_quick else 1
    return [UnitGroup(tuple(units[start : start + size])) for start in range(0, len(units), max(1, size))]


def settle_unit_types(
    counter: MisfitCounter, units: Sequence[FileUnit], runner: WorkRunner, make_reporter: MakeReporter
) -> tuple[ColumnChoice, ...]:
    """Return one conversion for each column; the units count misfits only if a column has more than one."""
    if all(len(choice.conversions) == 1 for choice in counter.choices):
        return counter.choices
    counts = runner.run(counter, units, make_reporter("checking"))
    _raise_unreadable([reason for reasons in counts if isinstance(reasons, tuple) for reason in reasons])
    total = MisfitCounts.empty(counter.choices)
    for unit_counts in counts:
        total = total + unit_counts if isinstance(unit_counts, MisfitCounts) else total
    return tuple(settle_types(counter.choices, total))


def write_units(
    writer: UnitWriter, units: Sequence[FileUnit], runner: WorkRunner, report_units: ReportUnits, request: LoadRequest
) -> list[WrittenUnit]:
    """Write all units; raise the report of bad rows if they stop it."""
    written = runner.run(writer, units, report_units)
    _raise_unreadable([reason for unit in written for reason in unit.unreadable])
    dropped = sum(unit.dropped for unit in written)
    if dropped and writer.context.source.on_bad == "stop":
        examples = [example for unit in written for example in unit.examples]
        raise describe_examples(examples, dropped, request.files, request.files_label)
    return written


def _raise_unreadable(reasons: Sequence[UnreadableReason]) -> None:
    if reasons:
        raise FilesUnreadable(reasons)

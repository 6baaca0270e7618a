"""Read the files of a source in units: inspect them, settle columns and types once, then write them.

The driver sees what the units tell, never the contents of files. Whatever the units are, the result is that of
`batch_reader.read_batch` for all files together.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import FileColumn
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import UnreadableFile
from runnel.connect.ingest.bad_rows import QuarantineTarget, SetAside
from runnel.connect.ingest.batch_reader import (
    IngestBatch,
    add_unreadable_files,
    check_place_of_rows,
    list_new_columns,
    prepare_target,
    suggest_missing_options,
)
from runnel.connect.ingest.batch_warnings import warn_of_first_types, warn_of_no_rows
from runnel.connect.ingest.column_check import require_values, restore_required
from runnel.connect.ingest.detect.local_files import warn_of_empty_files
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.part_writer import WrittenFiles, choose_shared_files
from runnel.connect.ingest.read_request import build_request
from runnel.connect.ingest.target_version import WriteTarget
from runnel.connect.ingest.units import file_unit
from runnel.connect.ingest.units.file_unit import FileUnit, divide_into_units, is_splittable
from runnel.connect.ingest.units.inspect_unit import UnitFacts, UnitInspector, merge_columns
from runnel.connect.ingest.units.option_suggester import OptionSuggester
from runnel.connect.ingest.units.unit_reader import UnitContext, UnreadableReason
from runnel.connect.ingest.units.unit_steps import FilesUnreadable, inspect_units, settle_unit_types, write_units
from runnel.connect.ingest.units.write_unit import MisfitCounter, UnitWriter, WrittenUnit
from runnel.connect.load.column_matching import ColumnChoice, match_columns
from runnel.connect.load.suggest.suggested_options import SuggestedOptions
from runnel.errors import error_from_json
from runnel.lake.iceberg import table_metadata
from runnel.lake.work_runner import ReportUnits, WorkRunner


@dataclass(frozen=True)
class _Settlement:
    """What the driver settled for all units: the columns of the files, their conversions, and the target version."""

    columns: tuple[FileColumn, ...]
    choices: tuple[ColumnChoice, ...]
    target: WriteTarget
    new_columns: tuple[str, ...]


def read_batch_in_units(
    ingest_target: IngestTarget,
    files: Sequence[LocalFile],
    runner: WorkRunner,
    owners: Mapping[str, str],
    *,
    from_scratch: bool,
    combine_files: bool = False,
    quarantine: QuarantineTarget | None = None,
) -> IngestBatch:
    """Read files for the target's version or, with `from_scratch`, for a recreated table.

    The path of a file is absolute, or the address of an object. Raises as `read_batch` does. `combine_files` writes the
    rows of all files of a unit together; a file that can't be read then raises, whatever the source's `on_bad`.
    Bad rows that are set aside are written for `quarantine`, if it is given.
    """
    if quarantine is not None:
        quarantine = replace(quarantine, metadata=table_metadata.drop_history(quarantine.metadata))
    batch = _UnitBatch(ingest_target, tuple(files), runner, owners, from_scratch, combine_files, quarantine)
    unreadable: dict[str, UnreadableReason] = {}
    undivided: set[str] = set()  # files that can't be read in splits
    with nullcontext() if combine_files else suggest_missing_options(build_request(ingest_target.source, files)):
        while True:
            try:
                return batch.read(unreadable, undivided)
            except FilesUnreadable as error:
                unreadable |= {reason.name: reason for reason in error.reasons if not reason.is_split}
                undivided |= {reason.name for reason in error.reasons if reason.is_split}


@dataclass(frozen=True)
class _UnitBatch:
    ingest_target: IngestTarget
    files: tuple[LocalFile, ...]
    runner: WorkRunner
    owners: Mapping[str, str]
    from_scratch: bool
    combine_files: bool
    quarantine: QuarantineTarget | None

    def read(self, unreadable: Mapping[str, UnreadableReason], undivided: Collection[str]) -> IngestBatch:
        """Read the files but the unreadable ones; raise FilesUnreadable if others are unreadable, too.

        Files that are `undivided` are read as a whole.
        """
        target = self.ingest_target
        context = UnitContext(
            target.source,
            target.store.files,
            target.run,
            self.owners,
            frozenset(unreadable),
            shares_files=not self.combine_files and bool(choose_shared_files(self.files)),
            combines_files=self.combine_files,
            quarantine=self.quarantine,
        )
        least_bytes = file_unit.SHARED_UNIT_BYTES if context.shares_files else 0
        request = build_request(target.source, self.files)
        readable_files = [file for file in self.files if file.name not in unreadable]
        split_units = self._divide(request, readable_files, undivided, least_bytes)
        units, facts = self._inspect(context, split_units)
        warnings = warn_of_empty_files([name for unit_facts in facts for name in unit_facts.empty_names])
        if not any(unit_facts.has_rows for unit_facts in facts):
            if unreadable and target.base is None and not request.schema:
                raise error_from_json(next(iter(unreadable.values())).error)  # no file tells which columns there are
            empty_target = prepare_target(target.store, target.source, (), target.base, from_scratch=self.from_scratch)
            return self._add_unreadable(IngestBatch(empty_target, warnings=warnings), unreadable)
        settlement = self._settle(context, units, facts, request)
        written = self._write(context, units, settlement, request)
        batch = _combine(settlement, written)
        if not self.combine_files:
            is_new = target.base is None or self.from_scratch
            needs = warn_of_first_types(target.source, request, settlement.choices, self._suggest) if is_new else ()
            warnings = (*warn_of_no_rows(request, batch, self._suggest), *needs, *warnings)
        return self._add_unreadable(replace(batch, warnings=warnings), unreadable)

    def _divide(
        self, request: LoadRequest, files: Sequence[LocalFile], undivided: Collection[str], least_bytes: int
    ) -> list[FileUnit]:
        splittable = {file.name for file in files if file.name not in undivided and is_splittable(file, request)}
        return divide_into_units(
            files, self.runner.parallel_units, self.runner.split_bytes, splittable, least_bytes=least_bytes
        )

    def _inspect(
        self, context: UnitContext, units: Sequence[FileUnit]
    ) -> tuple[Sequence[FileUnit], Sequence[UnitFacts]]:
        """Return the units, with the lines before each split of a file, and their facts."""
        target = self.ingest_target
        inspector = UnitInspector(context, self._load_schema_columns())
        numbered_units, facts = inspect_units(inspector, units, self.runner, self._report)
        target.report("checking", 0)
        return numbered_units, facts

    def _load_schema_columns(self) -> tuple[str, ...]:
        target = self.ingest_target
        if target.base is None or self.from_scratch:
            return ()
        schema = table_metadata.load_metadata(target.store, target.base).schema()
        return tuple(column.name for column in schema.fields)

    def _settle(
        self, context: UnitContext, units: Sequence[FileUnit], facts: Sequence[UnitFacts], request: LoadRequest
    ) -> _Settlement:
        """Settle columns and types; the units count misfits only if a column has more than one possible type."""
        target, source = self.ingest_target, self.ingest_target.source
        is_new = target.base is None or self.from_scratch
        schema = None if is_new else table_metadata.load_metadata(target.store, str(target.base)).schema()
        columns = merge_columns(request, facts)
        choices = match_columns(columns, request.schema, schema, source.on_new_column, request.files_label)
        check_place_of_rows(request, schema, choices)
        required_choices = require_values(choices, source)
        settled = settle_unit_types(MisfitCounter(context, columns, required_choices), units, self.runner, self._report)
        write_target = prepare_target(
            target.store, source, restore_required(settled, choices), target.base, from_scratch=self.from_scratch
        )
        return _Settlement(columns, settled, write_target, list_new_columns(schema, request, settled))

    def _write(
        self, context: UnitContext, units: Sequence[FileUnit], settlement: _Settlement, request: LoadRequest
    ) -> list[WrittenUnit]:
        metadata = table_metadata.drop_history(settlement.target.metadata)
        writer = UnitWriter(context, settlement.columns, settlement.choices, metadata)
        return write_units(writer, units, self.runner, self._report("reading"), request)

    def _add_unreadable(self, batch: IngestBatch, unreadable: Mapping[str, UnreadableReason]) -> IngestBatch:
        files = [
            UnreadableFile(file, error_from_json(unreadable[file.name].error))
            for file in self.files
            if file.name in unreadable
        ]
        return add_unreadable_files(batch, files, self.ingest_target, self._suggest)

    def _suggest(self, request: LoadRequest, file: LocalFile, text_columns: Collection[str]) -> SuggestedOptions:
        """Suggest options where the files are read."""
        suggester = OptionSuggester(replace(request, files=(file,)), self.ingest_target.store.files, text_columns)
        [suggested] = self.runner.run(suggester, [file])
        return suggested

    def _report(self, activity: str) -> ReportUnits:
        return lambda done, total: self.ingest_target.report(f"{activity} on executors", done, total)


def _combine(settlement: _Settlement, written: Sequence[WrittenUnit]) -> IngestBatch:
    locations_by_path: dict[str, tuple[str, ...]] = {}
    for unit in written:
        for path, locations in unit.written.locations_by_path.items():
            locations_by_path[path] = (*locations_by_path.get(path, ()), *locations)
    return IngestBatch(
        settlement.target,
        WrittenFiles(tuple(file for unit in written for file in unit.written.files), locations_by_path),
        sum(unit.dropped for unit in written),
        SetAside(
            tuple(file for unit in written for file in unit.set_aside.files),
            tuple(row for unit in written for row in unit.set_aside.rows),
            tuple(row for unit in written for row in unit.set_aside.examples),
        ),
        settlement.new_columns,
        incomplete=frozenset(name for unit in written for name in unit.incomplete),
    )

"""Load files by hand in units: the columns and types are settled once, and the result is that of one process.

Publishes nothing; `connect/load/load.py` does.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.connect.files.file_patterns import check_unchanged
from runnel.connect.files.load_request import STOP, LoadRequest
from runnel.connect.ingest.units.file_unit import divide_into_units, is_splittable
from runnel.connect.ingest.units.inspect_unit import UnitInspector, merge_columns
from runnel.connect.ingest.units.unit_reader import UnitContext
from runnel.connect.ingest.units.unit_steps import FilesUnreadable, inspect_units, settle_unit_types, write_units
from runnel.connect.ingest.units.write_unit import MisfitCounter, UnitWriter
from runnel.connect.load.column_matching import match_columns
from runnel.connect.load.file_loader import (
    PreparedLoad,
    describe_empty_files,
    list_new_columns,
    prepare_target,
    use_table_names,
)
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.lake.iceberg import table_metadata
from runnel.lake.work_runner import ReportUnits, WorkContext, WorkRunner

if TYPE_CHECKING:
    from runnel.lake.store import Store


def prepare_load_in_units(
    store: "Store", request: LoadRequest, base: str | None, work: WorkContext, runner: WorkRunner
) -> PreparedLoad:
    """Write the files of a request as `prepare_load` does, in units."""
    load = _UnitLoad(store, _use_absolute_paths(request), base, work, runner)
    undivided: set[str] = set()  # files that can't be read in splits
    while True:
        try:
            prepared = load.prepare(undivided)
        except FilesUnreadable as error:
            undivided |= {reason.name for reason in error.reasons}
        else:
            check_unchanged(request.files)
            return prepared


def _use_absolute_paths(request: LoadRequest) -> LoadRequest:
    """Return the request with paths that mean the same on all machines."""
    files = tuple(replace(file, path=os.path.abspath(file.path)) for file in request.files)  # noqa: PTH100 - links stay
    return replace(request, files=files)


@dataclass(frozen=True)
class _UnitLoad:
    store: "Store"
    request: LoadRequest
    base: str | None
    work: WorkContext
    runner: WorkRunner

    def prepare(self, undivided: Collection[str]) -> PreparedLoad:
        """Load the files; raise FilesUnreadable if some can't be read in splits, unless they are `undivided`."""
        schema = table_metadata.load_metadata(self.store, self.base).schema() if self.base else None
        request = use_table_names(self.request, schema)
        context = UnitContext(
            _describe_load(request),
            self.store.files,
            "",
            {},
            combines_files=True,
            load_request=replace(request, files=()),
        )
        splittable = {
            file.name for file in request.files if file.name not in undivided and is_splittable(file, request)
        }
        split_units = divide_into_units(request.files, self.runner.parallel_units, self.runner.split_bytes, splittable)
        units, facts = inspect_units(UnitInspector(context, ()), split_units, self.runner, self._report)
        if not any(unit_facts.has_rows for unit_facts in facts):
            raise describe_empty_files(request)
        expected = request.schema if request.allows_missing_columns else ()
        columns = merge_columns(replace(request, schema=expected), facts)
        choices = match_columns(columns, request.schema, schema, request.on_new_column, request.files_label)
        settled = settle_unit_types(MisfitCounter(context, columns, tuple(choices)), units, self.runner, self._report)
        location, metadata, updates = prepare_target(self.store, request, self.base, settled, None)
        writer = UnitWriter(context, columns, settled, table_metadata.drop_history(metadata))
        written = write_units(writer, units, self.runner, self._report("writing"), request)
        return PreparedLoad(
            location,
            updates,
            tuple(file for unit in written for file in unit.written.files),
            sum(unit.written.rows for unit in written),
            sum(unit.dropped for unit in written),
            list_new_columns(settled, self.base),
            self.runner.place,
        )

    def _report(self, activity: str) -> ReportUnits:
        return self.work.make_unit_reporter(f"{activity} on executors")


def _describe_load(request: LoadRequest) -> Source:
    """Return the load as a source: what units do with bad rows depends on it."""
    origin = Files(str(request.table), request.format, request.schema or None)  # type: ignore[arg-type]  # it was checked
    return Source(request.table, origin, SourceLocation("", 0), on_bad="stop" if request.on_bad == STOP else "drop")

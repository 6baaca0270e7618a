"""Load files into a table of a project by hand, in the place that its settings choose."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.load.load import LoadOptions, LoadResult
    from runnel.model.progress import Progress


def load(
    lake: "Lake", table: TableName, patterns: Sequence[str], options: "LoadOptions", progress: "Progress | None" = None
) -> "LoadResult":
    """Load files; the result has the place only if the project has a cluster, or its settings name a place."""
    from runnel.connect.ingest.units.load_units import prepare_load_in_units
    from runnel.connect.load.load import UnitLoading, load_files
    from runnel.project.work_places import create_work_context, get_shown_place

    job_group = f"load {secrets.token_hex(4)}"
    work = create_work_context(lake.settings, lake.spark_provider.get, job_group, progress)
    unit_loading = UnitLoading(work, prepare_load_in_units)
    result = load_files(lake.store, table, patterns, options, progress=progress, unit_loading=unit_loading)
    return replace(result, place=get_shown_place(lake.settings, result.place))

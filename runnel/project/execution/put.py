"""Put files into a file table of a project, in the place that its settings choose."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.files.put import PutResult
    from runnel.model.progress import Progress


def put(
    lake: "Lake",
    table: TableName,
    sources: Sequence[Path],
    *,
    branch: str = "main",
    prefix: str = "",
    message: str | None = None,
    report_progress: "Progress | None" = None,
) -> "PutResult":
    """Put files; the result has the place only if the project has a cluster, or its settings name a place."""
    from runnel.lake.files.put import put_files
    from runnel.project.work_places import create_work_context, get_shown_place

    job_group = f"put {secrets.token_hex(4)}"
    work = create_work_context(lake.settings, lake.spark_provider.get, job_group, report_progress)
    result = put_files(lake.store, table, sources, branch=branch, prefix=prefix, message=message, work=work)
    return replace(result, place=get_shown_place(lake.settings, result.place))

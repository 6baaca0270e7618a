"""Release quarantined rows of a source, or discard quarantined rows; a task's rows can only be discarded."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.declare.model.flow import QUARANTINE_LAYER, Flow, Source, quarantine_table_of
from runnel.errors import Mistake, did_you_mean, join_names, plural
from runnel.model.table_version import content_of_discard
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.connect.load.quarantined_row import QuarantinedRow
    from runnel.lake.history.commits import Commit

_ATTEMPTS = 5


@dataclass(frozen=True)
class DiscardResult:
    """How many quarantined rows were discarded, and the commit that removed them."""

    rows: int
    commit: "Commit"


def release(
    lake: "Lake",
    table: str,
    corrected: Path | None = None,
    *,
    file: str | None = None,
    branch: str = "main",
    flow: Flow | None = None,
) -> "ReleaseResult":
    """Ingest the quarantined rows of a source again; only those of `file` if it is given.

    `flow` is the loaded project, if there is one.
    """
    from runnel.connect.ingest.release.release import release_corrected_rows, release_unchanged_rows
    from runnel.connect.load.quarantine import read_quarantined_rows
    from runnel.project.work_places import create_work_context

    source, root = _find_source(lake, resolve_table(lake, table, branch), flow), lake.settings.root
    if corrected is None:
        job_group = f"release {secrets.token_hex(4)}"
        choose_runner = create_work_context(lake.settings, lake.spark_provider.get, job_group).choose_runner
        result = release_unchanged_rows(lake.store, source, root, file, branch=branch, choose_runner=choose_runner)
        if not result.rows:
            raise _describe_nothing(read_quarantined_rows(lake.store, source.table, branch, file), source, branch, file)
        return result
    quarantined_rows = read_quarantined_rows(lake.store, source.table, branch, file)
    selected_rows = [row for row in quarantined_rows if row.raw is not None]
    if not selected_rows:
        raise _describe_nothing(quarantined_rows, source, branch, file)
    return release_corrected_rows(lake.store, source, root, selected_rows, corrected, branch=branch)


def discard(lake: "Lake", table: str, *, file: str | None = None, branch: str = "main") -> DiscardResult:
    """Remove the quarantined rows of a table in one commit; only those of `file` if it is not None."""
    from runnel.lake.publish import retry_on_conflict

    return retry_on_conflict(lambda: _discard_once(lake, resolve_table(lake, table, branch), file, branch), _ATTEMPTS)


def _discard_once(lake: "Lake", table: TableName, file: str | None, branch: str) -> DiscardResult:
    from runnel.connect.load import quarantine
    from runnel.lake.history.commits import CommitChange
    from runnel.lake.leases.pins import acquire_pin
    from runnel.lake.publish import CommitDraft, publish

    store, quarantine_table = lake.store, quarantine_table_of(table)
    commit, version = store.commit(branch), store.state(branch).get(quarantine_table)
    rows = quarantine.read_quarantined_rows(store, table, branch, file)
    if version is None or not rows:
        raise _describe_no_rows("DISCARD_NOTHING", table, branch, file)
    with acquire_pin(store.db, "write") as pin:
        location = quarantine.replace_rows(store, version.location, rows, ())
        is_of_task = all(row.file is None for row in rows)
        content = content_of_discard(version.content, location) if is_of_task else location
        draft = CommitDraft(
            branch,
            f"discard {plural(len(rows), 'quarantined row')} of {table}",
            store.author,
            (CommitChange(quarantine_table, version.location, location, content),),
            kind="discard",
            expected_head=commit.id,
            pin=pin,
        )
        return DiscardResult(len(rows), publish(store.db, draft))


def format_quarantined_rows(
    lake: "Lake", table: str, rows: "Sequence[QuarantinedRow]", branch: str = "main"
) -> list[str]:
    """Return quarantined rows as text: for a source as a file that can be corrected and released, else as they are."""
    from runnel.connect.ingest.release.correction_file import format_rows
    from runnel.project.planning.plan_project import load_project_flow

    is_source = any(row.file for row in rows)
    source = load_project_flow(lake).sources.get(resolve_table(lake, table, branch)) if is_source else None
    if source is None:
        return [row.raw for row in rows if row.raw is not None]
    return format_rows(source, lake.settings.root, rows)


def _describe_nothing(rows: "Sequence[QuarantinedRow]", source: Source, branch: str, file: str | None) -> Mistake:
    """Return the error if there is nothing to release: no row, or only files that could not be read at all."""
    if not rows:
        return _describe_no_rows("RELEASE_NOTHING", source.table, branch, file)
    names = join_names(dict.fromkeys(row.file or "?" for row in rows))
    what = f"{names} can't be read, so there are no rows of it to release"
    fix = (
        "correct the file, or the options of the source, and `runnel run` reads it again; "
        f"`runnel quarantine {source.table} discard` forgets it"
    )
    return Mistake("RELEASE_NOTHING", what, fix=fix)


def _describe_no_rows(code: str, table: TableName, branch: str, file: str | None) -> Mistake:
    of_file = f" of {file}" if file else ""
    what = f"no row{of_file} of `{table}` is set aside on branch `{branch}`"
    return Mistake(code, what, fix=f"`runnel quarantine {table}` shows them")


def resolve_table(lake: "Lake", table: str, branch: str = "main") -> TableName:
    """Return the table of a name, which may also be the name of its quarantine table."""
    table_name = TableName.parse(table)
    version = lake.store.state(branch).get(table_name) if table_name.layer == QUARANTINE_LAYER else None
    if version is None:
        return table_name
    from runnel.lake.iceberg import table_properties
    from runnel.lake.iceberg.table_metadata import load_metadata

    return TableName.parse_unchecked(
        load_metadata(lake.store, version.location).properties.get(table_properties.QUARANTINE_OF, str(table_name))
    )


def _find_source(lake: "Lake", table: TableName, flow: Flow | None) -> Source:
    from runnel.project.planning.plan_project import load_project_flow

    flow = flow or load_project_flow(lake)
    if table in flow.sources:
        return flow.sources[table]
    if table in flow.tasks:
        what = (
            f"a task computes `{table}`: its rows leave {quarantine_table_of(table)} when it is computed without them"
        )
        fix = (
            f"correct what it reads or its check; runnel run -s {table} --full-refresh computes it again; "
            f"runnel quarantine {table} discard removes the rows"
        )
        raise Mistake("RELEASE_TASK", what, at=str(flow.tasks[table].place), fix=fix)
    what = f"no source fills `{table}`" + did_you_mean(str(table), [str(name) for name in flow.sources])
    raise Mistake("RELEASE_UNKNOWN", what, fix="runnel quarantine lists what is set aside")

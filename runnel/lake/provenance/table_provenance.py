"""Explain the provenance of a table: what created its content, from which versions, with which code. Reads only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.errors import CorruptData
from runnel.lake.flow_state import results
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_processed_files
from runnel.lake.history.commits import Commit
from runnel.lake.history.content_origin import ContentOrigin, HistoryStep, find_origin, find_publishing_step
from runnel.lake.iceberg.table_size import read_size
from runnel.model.secret_mask import mask_settings
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.flow_state.runs import Run
    from runnel.lake.store import Store
    from runnel.model.task_result import TaskResult

MAX_FILES = 20
_RUN_FACTS = ("code_id", "git", "packages", "conf")


@dataclass(frozen=True)
class InputVersion:
    """A version that a result was computed from, and the commit that published it; `rows` is None if unknown."""

    table: TableName
    location: str
    commit: Commit | None
    rows: int | None
    is_gone: bool = False


@dataclass(frozen=True)
class OriginFile:
    """A source file that a table's rows came from."""

    name: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Provenance:
    """The provenance of a table's content at a commit.

    `kind` says what created it: task, source, load, put, quarantine, merge, revert, erase, outside or write. `detail`
    is what was recorded with it. `later_result` is a later result with the same rows.
    """

    table: TableName
    at: Commit
    version: TableVersion
    kind: str
    origin_step: HistoryStep
    carrying_steps: tuple[HistoryStep, ...]
    rows: int | None
    inputs: tuple[InputVersion, ...] = ()
    files: tuple[OriginFile, ...] = ()
    files_total: int = 0
    later_result: "TaskResult | None" = None
    run_state: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> str | None:
        """Return the id of the run that created the content."""
        return self.detail.get("run") or self.origin_step.commit.run

    def __str__(self) -> str:
        """Return it as text for people, as `runnel why` prints it."""
        from runnel.lake.provenance.table_text import describe_provenance

        return describe_provenance(self)

    def json(self) -> dict[str, Any]:
        """Return the JSON that scripts rely on."""
        commit, detail = self.origin_step.commit, self.detail
        copied_keys = (
            "task",
            "place",
            "action",
            "reason",
            "git",
            "params",
            "packages",
            "conf",
            "checks",
            "fingerprint",
        )
        return {
            "table": str(self.table),
            "at": self.at.id,
            "location": self.version.location,
            "content": self.version.content,
            "kind": self.kind,
            "rows": self.rows,
            "commit": commit.id,
            "branch": commit.branch,
            "message": commit.message,
            "author": detail.get("author") or commit.author,
            "made_at": detail.get("made_at") or commit.at,
            "run": self.run,
            "state": self.run_state,
            "code": detail.get("code_id"),
            "key": detail.get("key"),
            **{name: detail.get(name) for name in copied_keys},
            "inputs": [_input_to_json(item) for item in self.inputs],
            "files": [asdict(item) for item in self.files],
            "files_total": self.files_total,
            "passed": [
                {"commit": item.commit.id, "kind": item.commit.kind, "at": item.commit.at}
                for item in self.carrying_steps
            ],
            "again": {"run": self.later_result.run, "made_at": self.later_result.made_at}
            if self.later_result
            else None,
        }


def explain_table(store: "Store", table: TableName, at: str = "main") -> Provenance:
    """Return the provenance of a table at a ref."""
    commit = store.commit(at)
    version = store.versions(commit, [table])[table]
    content_origin = store.db.read(lambda connection: find_origin(connection, commit, table))
    if content_origin is None:
        raise store.unknown_table_error(table, commit)
    kind, detail = classify_origin(content_origin), content_origin.origin_step.change.detail
    run = _find_run(store, detail.get("run") or content_origin.origin_step.commit.run)
    if is_stream_detail(detail):
        detail = {**_select_run_facts(run), **detail}
    if detail.get("conf"):  # earlier versions stored keys that stand in `runnel.toml`
        detail = {**detail, "conf": mask_settings(detail["conf"])}
    files, files_total = _list_files(store, kind, content_origin, commit, table)
    return Provenance(
        table,
        commit,
        version,
        kind,
        content_origin.origin_step,
        content_origin.carrying_steps,
        _count_rows(store, version.location)[0],
        _read_inputs(store, content_origin),
        files,
        files_total,
        _find_later_result(store, content_origin, version) if content_origin.is_task else None,
        run.state if run is not None else None,
        detail,
    )


def classify_origin(content_origin: ContentOrigin) -> str:
    """Return what kind of change created a table's content."""
    commit, detail = content_origin.origin_step.commit, content_origin.origin_step.change.detail
    if content_origin.is_task:
        return "task"
    if "of" in detail:
        return "quarantine"
    if detail.get("outside"):
        return "outside"
    if "load" in detail:
        return "load"
    if commit.kind in ("merge", "revert", "erase"):
        return commit.kind
    if commit.run is not None:
        return "source"
    return "put" if commit.message.startswith("put ") else "write"


def _read_inputs(store: "Store", content_origin: ContentOrigin) -> tuple[InputVersion, ...]:
    recorded_inputs: Mapping[str, Mapping[str, str]] = content_origin.origin_step.change.detail.get("inputs", {})
    inputs = []
    for name, recorded_version in recorded_inputs.items():
        table = TableName.parse_unchecked(name)
        step = store.db.read(
            lambda connection, table=table, recorded_version=recorded_version: find_publishing_step(
                connection, content_origin.origin_step.commit, table, recorded_version["location"]
            )  # type: ignore[misc]
        )
        rows, is_gone = _count_rows(store, recorded_version["location"])
        inputs.append(InputVersion(table, recorded_version["location"], step.commit if step else None, rows, is_gone))
    return tuple(inputs)


def _count_rows(store: "Store", location: str) -> tuple[int | None, bool]:
    """Return how many rows a version has, and whether its files were deleted."""
    from runnel.lake.iceberg.table_metadata import load_metadata

    try:
        return read_size(load_metadata(store, location)).rows, False
    except CorruptData:
        return None, True


def _list_files(
    store: "Store", kind: str, content_origin: ContentOrigin, at: Commit, table: TableName
) -> tuple[tuple[OriginFile, ...], int]:
    """Return the first source files that a table's rows came from, and how many there are in all."""
    if kind == "load":
        load_detail = content_origin.origin_step.change.detail["load"]
        loaded_files = [OriginFile(file["name"], file.get("bytes")) for file in load_detail["files"]]
        return tuple(loaded_files[:MAX_FILES]), len(loaded_files) + int(load_detail.get("more_files", 0))
    if kind != "source":
        return (), 0
    processed_files: list[ProcessedFile] = sorted(
        read_processed_files(store.db, at, table).values(), key=lambda file: file.path
    )
    return tuple(OriginFile(file.path, file.size, file.sha256) for file in processed_files[:MAX_FILES]), len(
        processed_files
    )


def _find_later_result(store: "Store", content_origin: ContentOrigin, version: TableVersion) -> "TaskResult | None":
    """Return the newest result with the same content if another run computed it again, else None."""
    newest = results.find_by_content(store.db, content_origin.origin_step.change.table, version.content)
    return newest if newest is not None and newest.run != content_origin.origin_step.change.detail.get("run") else None


def is_stream_detail(detail: Mapping[str, Any]) -> bool:
    """Return whether a batch of a stream recorded this detail."""
    return str(detail.get("key", "")).startswith("stream:")


def _find_run(store: "Store", run: str | None) -> "Run | None":
    from runnel.errors import Mistake
    from runnel.lake.flow_state.runs import find_run

    try:
        return store.db.read(lambda connection: find_run(connection, run)) if run else None
    except Mistake:
        return None


def _select_run_facts(run: "Run | None") -> dict[str, Any]:
    """Return the code and the packages that a run recorded: batches of streams are many, and don't repeat them."""
    recorded_detail = run.detail if run is not None else {}
    return {name: recorded_detail[name] for name in _RUN_FACTS if name in recorded_detail}


def _input_to_json(input_version: InputVersion) -> dict[str, Any]:
    return {
        "table": str(input_version.table),
        "location": input_version.location,
        "commit": input_version.commit.id if input_version.commit else None,
        "at": input_version.commit.at if input_version.commit else None,
        "rows": input_version.rows,
        "gone": input_version.is_gone,
    }

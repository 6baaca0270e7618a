"""Fetch the provenance of a table from a service, as the value that an embedded lake returns."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from runnel.client.remote.json_values import parse_changes, parse_commit, parse_version
from runnel.lake.history.content_origin import HistoryStep
from runnel.lake.provenance.input_rows import InputFile, InputRows
from runnel.lake.provenance.row_provenance import OffsetSpan, RowProvenance, TracedRow
from runnel.lake.provenance.table_provenance import InputVersion, OriginFile, Provenance, is_stream_detail
from runnel.model.task_result import TaskResult
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.lake.history.commits import Commit


def fetch_why(connection: "ServiceConnection", table: TableName, at: str) -> Provenance:
    """Return what computed a table, from which inputs, with which code."""
    body = connection.get(f"/tables/{table}/why", at=at)
    version = parse_version(body)

    @cache
    def get_commit(commit: str) -> Any:
        return connection.get(f"/commits/{commit}")

    def get_step(commit: str) -> HistoryStep:
        commit_json = get_commit(commit)
        return HistoryStep(
            parse_commit(commit_json), next(change for change in parse_changes(commit_json) if change.table == table)
        )

    origin_step = get_step(body["commit"])
    inputs = tuple(
        InputVersion(
            TableName.parse_unchecked(item["table"]),
            item["location"],
            parse_commit(get_commit(item["commit"])) if item["commit"] else None,
            item["rows"],
            item["gone"],
        )
        for item in body["inputs"]
    )
    recomputed, head = body["again"], version
    return Provenance(
        table,
        parse_commit(get_commit(body["at"])),
        version,
        body["kind"],
        origin_step,
        tuple(get_step(item["commit"]) for item in body["passed"]),
        body["rows"],
        inputs,
        tuple(OriginFile(item["name"], item["size"], item["sha256"]) for item in body["files"]),
        body["files_total"],
        TaskResult(table, body["key"] or "", head, {}, {}, recomputed["run"], body["branch"], recomputed["made_at"])
        if recomputed
        else None,
        body["state"],
        _build_detail(body, origin_step),
    )


def _build_detail(body: "Mapping[str, Any]", origin_step: HistoryStep) -> "Mapping[str, Any]":
    """Return what was recorded with a version; code and packages of a stream's batch are those of its run."""
    detail = origin_step.change.detail
    if not is_stream_detail(detail):
        return detail
    run_facts = {"code_id": body["code"], **{name: body[name] for name in ("git", "packages", "conf")}}
    return {**{name: value for name, value in run_facts.items() if value is not None}, **detail}


def fetch_row_provenance(connection: "ServiceConnection", table: TableName, row: str, at: str) -> RowProvenance:
    """Return where the rows of a table come from that a condition matches."""
    body = connection.get(f"/tables/{table}/why", row=row, at=at)

    @cache
    def get_commit(commit: str) -> "Commit":
        return parse_commit(connection.get(f"/commits/{commit}"))

    def parse_input(item: Mapping[str, Any]) -> InputRows:
        return InputRows(
            TableName.parse_unchecked(item["table"]),
            get_commit(item["commit"]) if item["commit"] else None,
            item["row"],
            item["rows_total"],
            tuple(InputFile(file["name"], file["rows"]) for file in item["files"]),
            item["files_total"],
            tuple(parse_input(above) for above in item["inputs"]),
            item["note"],
        )

    def parse_row(item: Mapping[str, Any]) -> TracedRow:
        return TracedRow(
            item["values"],
            item["kind"],
            get_commit(item["commit"]),
            item["run"],
            item["file"],
            item["record"],
            item["line"],
            tuple(OffsetSpan(**span) for span in item["offsets"]),
            tuple(parse_input(above) for above in item["inputs"]),
            item["note"],
        )

    rows = tuple(parse_row(item) for item in body["rows"])
    return RowProvenance(table, get_commit(body["at"]), body["row"], rows, body["rows_total"])

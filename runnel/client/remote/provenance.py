"""Fetch the provenance of a table from a service, as the value that an embedded lake returns."""

from functools import cache
from typing import TYPE_CHECKING, Any

from runnel.client.remote.json_values import parse_changes, parse_commit, parse_version
from runnel.lake.flow_state.provenance import InputVersion, OriginFile, Provenance
from runnel.lake.history.content_origin import HistoryStep
from runnel.model.task_result import TaskResult
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection


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
        origin_step.change.detail,
    )

"""Why a table of a lake behind a service holds what it holds, as the value that an embedded lake returns."""

from functools import cache
from typing import TYPE_CHECKING, Any

from runnel.client.remote.json_values import changes_of, commit_of, version_of
from runnel.lake.flow_state.provenance import File, Input, Why
from runnel.lake.history.content_origin import Step
from runnel.names import TableName
from runnel.plan.facts import Head, Result

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection


def why(connection: "Connection", table: TableName, at: str) -> Why:
    """Return what made a table, from which inputs, with which code."""
    found = connection.get(f"/tables/{table}/why", at=at)
    version = version_of(found)

    @cache
    def told(commit: str) -> Any:
        return connection.get(f"/commits/{commit}")

    def step(commit: str) -> Step:
        whole = told(commit)
        return Step(commit_of(whole), next(one for one in changes_of(whole) if one.table == table))

    made = step(found["commit"])
    inputs = tuple(
        Input(
            TableName.stored(one["table"]),
            one["location"],
            commit_of(told(one["commit"])) if one["commit"] else None,
            one["rows"],
            one["gone"],
        )
        for one in found["inputs"]
    )
    again, head = found["again"], Head(version.location, version.content)
    return Why(
        table,
        commit_of(told(found["at"])),
        version,
        found["kind"],
        made,
        tuple(step(one["commit"]) for one in found["passed"]),
        found["rows"],
        inputs,
        tuple(File(one["name"], one["size"], one["sha256"]) for one in found["files"]),
        found["files_total"],
        Result(table, found["key"] or "", head, {}, {}, again["run"], found["branch"], again["made_at"])
        if again
        else None,
        found["state"],
        made.change.detail,
    )

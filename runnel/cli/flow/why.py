"""`runnel why`."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import command, count, lake, print_json, size, when

if TYPE_CHECKING:
    from runnel.lake.flow_state.provenance import Input, Why
    from runnel.lake.history.content_origin import Step

_WIDTH = 80
_INDENT = 13
_SHORT, _CODE = 8, 12  # how much of a commit's and of a code's id people need
_KINDS = {
    "source": "a source, by run {run}",
    "load": "runnel load",
    "put": "runnel put",
    "quarantine": "checks of {of}: the rows that they set aside",
    "merge": "a merge that put the changes of both branches together",
    "revert": "a revert that kept later changes",
    "erase": "an erasure of rows",
    "outside": "another engine, straight in the catalog",
    "write": "{message}",
}
_ASIDE = {"drop": "dropped", "quarantine": "put into quarantine", "warn": "warned of"}
_PASSED = {
    "merge": "merged into {branch}",
    "revert": "brought back by a revert",
    "compact": "compacted",
    "erase": "rows erased",
}


@command()
@click.argument("table", metavar="TABLE")
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
def why(table: str, ref: str, as_json: bool) -> None:
    """Show why a table holds what it holds: inputs, code, parameters, run, checks."""
    with lake() as opened:
        found = opened.why(table, at=ref)
    if as_json:
        print_json(found.json())
        return
    click.echo(f"{found.table} at {found.at.id[:_SHORT]} on {found.at.branch}, {count(found.rows, 'row')}")
    for name, texts in _parts(found):
        lines = [line for text in texts for line in _wrapped(text)]
        for at, line in enumerate(lines):
            click.echo(f"  {'' if at else name:<{_INDENT - 2}}{line}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH - _INDENT, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _parts(found: "Why") -> Iterator[tuple[str, Sequence[str]]]:
    detail, made = found.detail, found.made.commit
    yield "made by", [_maker(found)]
    if found.kind == "task":
        yield "how", [f"{detail.get('action', '?')}: {detail.get('reason') or '?'}"]
    if found.run is not None:
        yield "run", [f"{found.run}{f', {found.run_state}' if found.run_state else ''}"]
    who, at = detail.get("author") or made.author, detail.get("made_at") or made.at
    yield "when", [f"{when(at)} UTC, by {who}"]
    yield "commit", [f"{made.id[:_SHORT]} on {made.branch}: {made.message}"]
    if found.kind == "task":
        yield from _task(found)
    if found.files:
        yield "files", list(_files(found))
    if found.kind in ("load", "put", "write", "outside"):
        yield "before", [f"`runnel log {found.table}` lists its earlier changes"]
    if found.passed:
        yield "then", [_passed(step) for step in reversed(found.passed)]
    if found.again is not None:
        yield "again", [f"run {found.again.run} came to the same rows, {when(found.again.made_at)} UTC"]


def _maker(found: "Why") -> str:
    detail = found.detail
    if found.kind == "task":
        return f"task {detail.get('task', '?')}, {detail.get('place', '?')}"
    known = {"run": found.run, "of": detail.get("of"), "message": found.made.commit.message}
    return _KINDS[found.kind].format(**known)


def _task(found: "Why") -> "Iterator[tuple[str, Sequence[str]]]":
    detail = found.detail
    yield "inputs", [_input(one) for one in found.inputs] or ["none"]
    yield "code", [_code(detail)]
    yield "parameters", [", ".join(f"{name}={value}" for name, value in detail.get("params", {}).items()) or "none"]
    if detail.get("conf"):
        yield "settings", [", ".join(f"{name}={value}" for name, value in detail["conf"].items())]
    packages = [f"{name} {version}" for name, version in detail.get("packages", {}).items()]
    yield "packages", [", ".join(packages) or "not recorded"]
    yield "checks", [_check(one) for one in detail.get("checks", ())] or ["none"]


def _input(one: "Input") -> str:
    rows = "gone" if one.is_gone else count(one.rows, "row")
    where = f"commit {one.commit.id[:_SHORT]}, {when(one.commit.at)}" if one.commit else "never published"
    return f"{one.table}  {rows}, {where}"


def _code(detail: Any) -> str:
    if not detail.get("code_id"):
        return "not recorded"
    git = detail.get("git")
    told = f", git {git['commit'][:_CODE]}{' with uncommitted changes' if git['dirty'] else ''}" if git else ""
    return f"{detail['code_id'][:_CODE]}{told}"


def _check(one: Any) -> str:
    if not one["failed"]:
        return f"{one['check']}: passed"
    return f"{one['check']}: {one['failed']:,} failed, {_ASIDE.get(one['on_fail'], one['on_fail'])}"


def _files(found: "Why") -> Iterator[str]:
    for one in found.files:
        sha = f", sha256 {one.sha256[:_CODE]}" if one.sha256 else ""
        yield f"{one.name}  {size(one.size)}{sha}"
    if found.files_total > len(found.files):
        yield f"and {count(found.files_total - len(found.files))} more"


def _passed(step: "Step") -> str:
    commit = step.commit
    told = _PASSED.get(commit.kind, commit.message).format(branch=commit.branch)
    return f"{told}: commit {commit.id[:_SHORT]}, {when(commit.at)} UTC"

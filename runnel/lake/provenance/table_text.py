"""Describe the provenance of a table as text for people, as `runnel why` and `print` show it."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from runnel.text_tables import format_count, format_size, format_time

if TYPE_CHECKING:
    from runnel.lake.history.content_origin import HistoryStep
    from runnel.lake.provenance.table_provenance import InputVersion, Provenance

_WIDTH = 80
_INDENT = 13
_COMMIT_LENGTH, _CODE_LENGTH = 8, 12  # how many characters of a commit's and of a code's id are shown
_MAKER_TEXTS = {
    "source": "a source, by run {run}",
    "load": "runnel load",
    "put": "runnel put",
    "quarantine": "checks of {of}: the rows that they set aside",
    "merge": "a merge that put the changes of both branches together",
    "revert": "a revert that kept later changes",
    "erase": "an erasure of rows",
    "outside": "another engine, directly in the catalog",
    "write": "{message}",
}
_FAILED_ROW_TEXTS = {"drop": "dropped", "quarantine": "put into quarantine", "warn": "warned of"}
_STEP_TEXTS = {
    "merge": "merged into {branch}",
    "revert": "brought back by a revert",
    "compact": "compacted",
    "erase": "rows erased",
}


def describe_provenance(provenance: "Provenance") -> str:
    """Return the provenance of a table, one aspect per line."""
    lines = [
        f"{provenance.table} at {provenance.at.id[:_COMMIT_LENGTH]} on "
        f"{provenance.at.branch}, {format_count(provenance.rows, 'row')}"
    ]
    for name, texts in _describe_parts(provenance):
        wrapped_lines = [line for text in texts for line in _wrap_text(text)]
        lines += [
            f"  {'' if number else name:<{_INDENT - 2}}{line}".rstrip() for number, line in enumerate(wrapped_lines)
        ]
    return "\n".join(lines)


def _wrap_text(text: str) -> list[str]:
    return wrap(text, _WIDTH - _INDENT, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _describe_parts(provenance: "Provenance") -> Iterator[tuple[str, Sequence[str]]]:
    detail, commit = provenance.detail, provenance.origin_step.commit
    yield "made by", [_describe_maker(provenance)]
    if provenance.kind == "task" and "action" in detail:
        yield "how", [f"{detail.get('action', '?')}: {detail.get('reason') or '?'}"]
    if provenance.run is not None:
        yield "run", [f"{provenance.run}{f', {provenance.run_state}' if provenance.run_state else ''}"]
    author, computed_at = detail.get("author") or commit.author, detail.get("made_at") or commit.at
    yield "when", [f"{format_time(computed_at)} UTC, by {author}"]
    yield "commit", [f"{commit.id[:_COMMIT_LENGTH]} on {commit.branch}: {commit.message}"]
    if provenance.kind == "task":
        yield from _describe_task(provenance)
    if provenance.files:
        yield "files", list(_describe_files(provenance))
    if provenance.kind in ("load", "put", "write", "outside"):
        yield "before", [f"`runnel log {provenance.table}` lists its earlier changes"]
    if provenance.carrying_steps:
        yield "then", [_describe_step(step) for step in reversed(provenance.carrying_steps)]
    if provenance.later_result is not None:
        yield (
            "again",
            [
                f"run {provenance.later_result.run} computed the same rows, "
                f"{format_time(provenance.later_result.made_at)} UTC"
            ],
        )


def _describe_maker(provenance: "Provenance") -> str:
    detail = provenance.detail
    if provenance.kind == "task" and "task" not in detail:  # of a version of Runnel that did not record it
        return f"the task of {provenance.table}"
    if provenance.kind == "task":
        return f"task {detail['task']}, {detail.get('place', '?')}"
    values = {"run": provenance.run, "of": detail.get("of"), "message": provenance.origin_step.commit.message}
    return _MAKER_TEXTS[provenance.kind].format(**values)


def _describe_task(provenance: "Provenance") -> "Iterator[tuple[str, Sequence[str]]]":
    detail = provenance.detail
    yield "inputs", [_describe_input(entry) for entry in provenance.inputs] or ["none"]
    yield "code", [_describe_code(detail)]
    if "params" in detail:
        yield "parameters", [", ".join(f"{name}={value}" for name, value in detail["params"].items()) or "none"]
    if detail.get("conf"):
        yield "settings", [", ".join(f"{name}={value}" for name, value in detail["conf"].items())]
    packages = [f"{name} {version}" for name, version in detail.get("packages", {}).items()]
    yield "packages", [", ".join(packages) or "not recorded"]
    if "checks" in detail or detail.get("action") != "stream":
        yield "checks", [_describe_check(entry) for entry in detail.get("checks", ())] or ["none"]


def _describe_input(table_input: "InputVersion") -> str:
    rows = "gone" if table_input.is_gone else format_count(table_input.rows, "row")
    version_text = (
        f"commit {table_input.commit.id[:_COMMIT_LENGTH]}, {format_time(table_input.commit.at)}"
        if table_input.commit
        else "never published"
    )
    return f"{table_input.table}  {rows}, {version_text}"


def _describe_code(detail: Any) -> str:
    if not detail.get("code_id"):
        return "not recorded"
    git = detail.get("git")
    git_text = (
        f", git {git['commit'][:_CODE_LENGTH]}{' with uncommitted changes' if git['dirty'] else ''}" if git else ""
    )
    return f"{detail['code_id'][:_CODE_LENGTH]}{git_text}"


def _describe_check(verdict: Any) -> str:
    if not verdict["failed"]:
        return f"{verdict['check']}: passed"
    return (
        f"{verdict['check']}: {verdict['failed']:,} failed, "
        f"{_FAILED_ROW_TEXTS.get(verdict['on_fail'], verdict['on_fail'])}"
    )


def _describe_files(provenance: "Provenance") -> Iterator[str]:
    for file in provenance.files:
        sha = f", sha256 {file.sha256[:_CODE_LENGTH]}" if file.sha256 else ""
        yield f"{file.name}  {format_size(file.size)}{sha}"
    if provenance.files_total > len(provenance.files):
        yield f"and {format_count(provenance.files_total - len(provenance.files))} more"


def _describe_step(step: "HistoryStep") -> str:
    commit = step.commit
    text = _STEP_TEXTS.get(commit.kind, commit.message).format(branch=commit.branch)
    return f"{text}: commit {commit.id[:_COMMIT_LENGTH]}, {format_time(commit.at)} UTC"

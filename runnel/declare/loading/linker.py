"""Link the declarations of a project: every input to the table that it names, every parameter to its value.

Pure. Returns the flow together with all mistakes; the flow is complete only if there are none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.declare.api.changes import add_change_logs
from runnel.declare.loading import cycle_check
from runnel.declare.loading.parameter_values import resolve_value
from runnel.declare.model.flow import (
    QUARANTINE_LAYER,
    Alert,
    Check,
    Flow,
    Schedule,
    Sink,
    Source,
    Task,
    quarantine_table_of,
)
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.model.task_draft import TaskDraft
from runnel.declare.registry import Registry
from runnel.declare.settings import FROM_SET, ParamOrigin
from runnel.errors import Mistake, close_hint, did_you_mean, find_nearest
from runnel.names import TableName, quote_value


@dataclass
class _Linker:
    """The declared tables, by name and by the last part of the name, and the mistakes so far."""

    claimed: set[str]
    makers: dict[TableName, TaskDraft | Source] = field(default_factory=dict)
    by_last_part: dict[str, list[TableName]] = field(default_factory=lambda: defaultdict(list))
    mistakes: list[Mistake] = field(default_factory=list)

    def reject(self, code: str, what: str, at: SourceLocation | None, fix: str) -> None:
        self.mistakes.append(Mistake(code, what, at=str(at) if at else None, fix=fix))


def link_flow(
    registry: Registry,
    root: Path,
    params: Mapping[str, Any],
    origins: Mapping[str, ParamOrigin] | None = None,
    *,
    is_complete: bool = True,
) -> tuple[Flow, list[Mistake]]:
    """Return the flow that a registry holds, with the mistakes that only the complete flow shows.

    `params` are the project's values for keyword parameters, `origins` say where each of them is set. Unless the
    registry `is_complete`, a value that no task takes may be for one that could not be read.
    """
    linker = _Linker(registry.claimed)
    _index_makers(linker, registry)
    tasks = {draft.table: _link_task(linker, draft, params, origins or {}) for draft in registry.tasks}
    flow = Flow(
        root=root,
        tasks={table: task for table, task in tasks.items() if isinstance(linker.makers[table], TaskDraft)},
        sources={source.table: source for source in linker.makers.values() if isinstance(source, Source)},
        sinks=tuple(registry.sinks),
        schedules=tuple(registry.schedules),
        alerts=tuple(registry.alerts),
    )
    linker.mistakes += cycle_check.check_flow(flow)
    _refuse_shared_quarantines(linker, flow)
    _refuse_unknown_tables(linker, flow)
    if is_complete:
        _refuse_unused_params(linker, registry, origins or {})
    return flow, linker.mistakes


def _index_makers(linker: _Linker, registry: Registry) -> None:
    def wrong(source: Source, what: str, fix: str) -> None:
        linker.reject("DECLARE_CHANGES", what, source.place, fix)

    declared: list[TaskDraft | Source] = [*add_change_logs(registry.sources, wrong), *registry.tasks]
    for maker in declared:
        if maker.table.layer == QUARANTINE_LAYER:
            what = f"{_describe_maker(maker)} is in the layer `{QUARANTINE_LAYER}`, which belongs to rows set aside"
            linker.reject("DECLARE_QUARANTINE", what, maker.place, "choose another layer")
        other = linker.makers.setdefault(maker.table, maker)
        if other is maker:
            linker.by_last_part[maker.table.name].append(maker.table)
            continue
        first, second = sorted((other, maker), key=lambda candidate: candidate.place)
        what = f"`{maker.table}` is made twice: by {_describe_location(first)}, and by {_describe_location(second)}"
        linker.reject("DECLARE_TWO_MAKERS", what, second.place, "rename one of them, or remove it")


def _describe_maker(maker: TaskDraft | Source) -> str:
    return f"source `{maker.table}`" if isinstance(maker, Source) else f"task `{maker.display_name}`"


def _describe_location(maker: TaskDraft | Source) -> str:
    return f"the source at {maker.place}" if isinstance(maker, Source) else f"the task at {maker.place}"


def _link_task(
    linker: _Linker, draft: TaskDraft, params: Mapping[str, Any], origins: Mapping[str, ParamOrigin]
) -> Task:
    inputs = [
        (parameter, _resolve_input(linker, draft, parameter, table_name)) for parameter, table_name in draft.inputs
    ]
    values = []
    hidden = {name for name, origin in origins.items() if origin.is_hidden}
    for param in draft.params:
        try:
            value = resolve_value(param, params, f"task `{draft.display_name}`", is_hidden=param.name in hidden)
            values.append((param.name, value))
        except Mistake as mistake:
            mistake.at = str(draft.place)
            linker.mistakes.append(mistake)
    return Task(
        table=draft.table,
        name=draft.name,
        place=draft.place,
        inputs=tuple((parameter, table) for parameter, table in inputs if table is not None),
        params=tuple(values),
        function=draft.function,
        sql=draft.sql,
        takes_spark=draft.takes_spark,
        takes_scheduled_at=draft.takes_scheduled_at,
        options=draft.options,
        checks=tuple(_resolve_check(linker, draft, check) for check in draft.checks),
        description=draft.description,
        option_places=draft.option_places,
    )


def _resolve_input(linker: _Linker, draft: TaskDraft, parameter: str, table_name: str | None) -> TableName | None:
    """Return the table of an input. The last part of a name never means the task's own table."""
    text = table_name or parameter
    if "." in text:
        table = TableName.parse_unchecked(text)
        if table in linker.makers:
            return table
        _report_unknown_input(linker, draft, parameter, text)
        return None
    candidates = [table for table in linker.by_last_part.get(text, ()) if table != draft.table]
    if draft.sql is not None and len(candidates) == 1:
        what = f"task `{draft.display_name}` reads `{text}`, which has no layer"
        linker.reject("PLAN_UNKNOWN_INPUT", what, draft.place, f"write `{candidates[0]}`")
        return None
    if len(candidates) > 1:
        choices = " or ".join(f"`{table}`" for table in sorted(candidates))
        what = f"task `{draft.display_name}` reads `{text}`, which may be {choices}"
        fix = f"write `{candidates[0]}`" if draft.sql else f'pass inputs={{"{parameter}": "{candidates[0]}"}}'
        linker.reject("PLAN_AMBIGUOUS_INPUT", what, draft.place, fix)
        return None
    if not candidates:
        _report_unknown_input(linker, draft, parameter, text)
    return candidates[0] if candidates else None


def _report_unknown_input(linker: _Linker, draft: TaskDraft, parameter: str, text: str) -> None:
    if text in linker.claimed:
        return
    close = find_nearest(text, [str(table) for table in linker.makers if table != draft.table])
    what = f"task `{draft.display_name}` reads `{text}`, but no source or task makes it"
    if close is None:
        full = text if "." in text else f"ods.{text}"
        fix = f'declare it: rn.source("{full}", rn.files(...)), or rn.manual() for a table that is loaded by hand'
        linker.reject("PLAN_UNKNOWN_INPUT", what, draft.place, fix)
        return
    fix = f"write `{close}`"
    if draft.sql is None:
        fix = f'pass inputs={{"{parameter}": "{close}"}}'
        last = close.rpartition(".")[2]
        if "." not in text and last != text and len(linker.by_last_part[last]) == 1:
            fix = f"rename the parameter to `{last}`, or {fix}"
    linker.reject("PLAN_UNKNOWN_INPUT", what + close_hint(close), draft.place, fix)


def _resolve_check(linker: _Linker, draft: TaskDraft, check: Check) -> Check:
    """Return a check whose `table` argument is a full table name."""
    table_name = dict(check.arguments).get("table")
    if table_name is None:
        return check
    candidates = (
        [TableName.parse_unchecked(table_name)] if "." in table_name else linker.by_last_part.get(table_name, [])
    )
    existing = [table for table in candidates if table in linker.makers]
    if len(existing) == 1:
        return replace(check, arguments=(("table", str(existing[0])), *check.arguments[1:]))
    if table_name not in linker.claimed:
        what = f"`{check.text}` of task `{draft.display_name}` refers to `{table_name}`, "
        what += "which may be several tables" if existing else "but no source or task makes it"
        fix = "name the table with its layer and its column: ods.sellers.id"
        place = check.place or draft.place
        hint = did_you_mean(table_name, [str(table) for table in linker.makers])
        linker.reject("DECLARE_CHECK", what + hint, place, fix)
    return check


def _refuse_shared_quarantines(linker: _Linker, flow: Flow) -> None:
    owners: dict[TableName, Task | Source] = {}
    for maker in flow:
        is_used = maker.on_bad == QUARANTINE_LAYER if isinstance(maker, Source) else maker.quarantine_table is not None
        if not is_used:
            continue
        other = owners.setdefault(quarantine_table_of(maker.table), maker)
        if other is not maker:
            what = f"`{other.table}` and `{maker.table}` would both put rows into `{quarantine_table_of(maker.table)}`"
            linker.reject("DECLARE_QUARANTINE", what, maker.place, "rename one of the tables")


def _refuse_unknown_tables(linker: _Linker, flow: Flow) -> None:
    """Report sinks and schedules that name unknown tables, and declarations that share a name."""
    references: list[tuple[str, str, SourceLocation]] = [
        (f"sink of `{sink.table}`", str(sink.table), sink.place) for sink in flow.sinks
    ]
    rename = "rename one of them"
    _refuse_duplicate_names(linker, "sink", flow.sinks, 'give one another name: rn.sink(..., name="...")')
    _refuse_duplicate_names(linker, "schedule", flow.schedules, rename)
    _refuse_duplicate_names(linker, "alert", flow.alerts, rename)
    for schedule in flow.schedules:
        references += [
            (f"schedule {quote_value(schedule.name)}", table, schedule.place) for table in schedule.on_change
        ]
    for owner, table, place in references:
        if TableName.parse_unchecked(table) not in linker.makers and table not in linker.claimed:
            what = f"the {owner} names `{table}`, but no source or task makes it"
            hint = did_you_mean(table, [str(existing_table) for existing_table in linker.makers])
            linker.reject("PLAN_UNKNOWN_TABLE", what + hint, place, "correct the name")


def _refuse_duplicate_names(
    linker: _Linker, kind: str, declarations: Iterable[Sink | Schedule | Alert], fix: str
) -> None:
    seen: dict[str, SourceLocation] = {}
    for declaration in declarations:
        first = seen.setdefault(declaration.name, declaration.place)
        if first is not declaration.place:
            what = f"two {kind}s are called {quote_value(declaration.name)}: at {first} and at {declaration.place}"
            linker.reject(f"DECLARE_{kind.upper()}", what, declaration.place, fix)


def _refuse_unused_params(linker: _Linker, registry: Registry, origins: Mapping[str, ParamOrigin]) -> None:
    param_names = dict.fromkeys(_param_names(registry))
    for name, origin in origins.items():
        if name not in param_names:
            is_set = origin.at == FROM_SET
            setting = f"--set {name}=..." if is_set else f"`{name}` of [params]"
            what = f"{setting} reaches no task: none has a keyword parameter `{name}`"
            what += did_you_mean(name, param_names)
            fix = f"the parameters are: {', '.join(param_names)}" if param_names else "no task has keyword parameters"
            at = None if is_set else origin.at
            linker.mistakes.append(Mistake("DECLARE_PARAM_UNKNOWN", what, at=at, fix=fix))


def _param_names(registry: Registry) -> Iterator[str]:
    for draft in registry.tasks:
        for param in draft.params:
            yield param.name

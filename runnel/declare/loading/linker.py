"""Link what was declared: every input to the table that it names, every parameter to its value.

Pure. Returns the flow together with all mistakes found; the flow is whole only where there are none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.declare.api.changes import with_logs
from runnel.declare.loading import cycle_check
from runnel.declare.loading.parameter_values import value_of
from runnel.declare.model.flow import QUARANTINE, Alert, Check, Flow, Schedule, Sink, Source, Task, quarantine_of
from runnel.declare.model.source_location import Place
from runnel.declare.model.task_draft import Draft
from runnel.declare.registry import Registry
from runnel.declare.settings import FROM_SET, ParamOrigin
from runnel.errors import Mistake, nearest
from runnel.names import TableName, shown


@dataclass
class _Linker:
    """The tables that are made, by name and by last name part, and the mistakes so far."""

    claimed: set[str]
    makers: dict[TableName, Draft | Source] = field(default_factory=dict)
    by_last: dict[str, list[TableName]] = field(default_factory=lambda: defaultdict(list))
    mistakes: list[Mistake] = field(default_factory=list)

    def wrong(self, code: str, what: str, at: Place | None, fix: str) -> None:
        self.mistakes.append(Mistake(code, what, at=str(at) if at else None, fix=fix))


def link(
    registry: Registry,
    root: Path,
    params: Mapping[str, Any],
    origins: Mapping[str, ParamOrigin] | None = None,
    *,
    is_whole: bool = True,
) -> tuple[Flow, list[Mistake]]:
    """Return the flow that a registry holds, with the mistakes that show only when all is known.

    `params` are the project's values for keyword parameters, `origins` say where each of them stands. Unless the
    registry `is_whole`, a value that no task takes may be for one that could not be read.
    """
    linker = _Linker(registry.claimed)
    _find_makers(linker, registry)
    tasks = {draft.table: _task(linker, draft, params, origins or {}) for draft in registry.tasks}
    flow = Flow(
        root=root,
        tasks={table: task for table, task in tasks.items() if isinstance(linker.makers[table], Draft)},
        sources={source.table: source for source in linker.makers.values() if isinstance(source, Source)},
        sinks=tuple(registry.sinks),
        schedules=tuple(registry.schedules),
        alerts=tuple(registry.alerts),
    )
    linker.mistakes += cycle_check.mistakes(flow)
    _refuse_quarantines(linker, flow)
    _refuse_loose_ends(linker, flow)
    if is_whole:
        _refuse_unused(linker, registry, origins or {})
    return flow, linker.mistakes


def _find_makers(linker: _Linker, registry: Registry) -> None:
    def wrong(source: Source, what: str, fix: str) -> None:
        linker.wrong("DECLARE_CHANGES", what, source.place, fix)

    declared: list[Draft | Source] = [*with_logs(registry.sources, wrong), *registry.tasks]
    for made in declared:
        if made.table.layer == QUARANTINE:
            what = f"{_called(made)} is in the layer `{QUARANTINE}`, which belongs to rows set aside"
            linker.wrong("DECLARE_QUARANTINE", what, made.place, "choose another layer")
        other = linker.makers.setdefault(made.table, made)
        if other is made:
            linker.by_last[made.table.name].append(made.table)
            continue
        first, second = sorted((other, made), key=lambda one: one.place)
        what = f"`{made.table}` is made twice: by {_at(first)}, and by {_at(second)}"
        linker.wrong("DECLARE_TWO_MAKERS", what, second.place, "rename one of them, or remove it")


def _called(made: Draft | Source) -> str:
    return f"source `{made.table}`" if isinstance(made, Source) else f"task `{made.shown}`"


def _at(made: Draft | Source) -> str:
    return f"the source at {made.place}" if isinstance(made, Source) else f"the task at {made.place}"


def _task(linker: _Linker, draft: Draft, params: Mapping[str, Any], origins: Mapping[str, ParamOrigin]) -> Task:
    found = [(parameter, _input(linker, draft, parameter, named)) for parameter, named in draft.inputs]
    values = []
    hidden = {name for name, origin in origins.items() if origin.is_hidden}
    for param in draft.params:
        try:
            value = value_of(param, params, f"task `{draft.shown}`", is_hidden=param.name in hidden)
            values.append((param.name, value))
        except Mistake as mistake:
            mistake.at = str(draft.place)
            linker.mistakes.append(mistake)
    return Task(
        table=draft.table,
        name=draft.name,
        place=draft.place,
        inputs=tuple((parameter, table) for parameter, table in found if table is not None),
        params=tuple(values),
        function=draft.function,
        sql=draft.sql,
        takes_spark=draft.takes_spark,
        options=draft.options,
        checks=tuple(_check(linker, draft, check) for check in draft.checks),
        description=draft.description,
    )


def _input(linker: _Linker, draft: Draft, parameter: str, named: str | None) -> TableName | None:
    """Return the table of an input. Its own table is never meant by a last name part alone."""
    text = named or parameter
    if "." in text:
        table = TableName.stored(text)
        if table in linker.makers:
            return table
        _tell_unknown(linker, draft, parameter, text)
        return None
    meant = [table for table in linker.by_last.get(text, ()) if table != draft.table]
    if draft.sql is not None and len(meant) == 1:
        what = f"task `{draft.shown}` reads `{text}`, which has no layer"
        linker.wrong("PLAN_UNKNOWN_INPUT", what, draft.place, f"write `{meant[0]}`")
        return None
    if len(meant) > 1:
        choices = " or ".join(f"`{table}`" for table in sorted(meant))
        what = f"task `{draft.shown}` reads `{text}`, which may be {choices}"
        fix = f"write `{meant[0]}`" if draft.sql else f'pass inputs={{"{parameter}": "{meant[0]}"}}'
        linker.wrong("PLAN_AMBIGUOUS_INPUT", what, draft.place, fix)
        return None
    if not meant:
        _tell_unknown(linker, draft, parameter, text)
    return meant[0] if meant else None


def _tell_unknown(linker: _Linker, draft: Draft, parameter: str, text: str) -> None:
    if text in linker.claimed:
        return
    close = nearest(text, [str(table) for table in linker.makers if table != draft.table])
    what = f"task `{draft.shown}` reads `{text}`, but no source or task makes it"
    if close is None:
        full = text if "." in text else f"ods.{text}"
        fix = f'declare it: rn.source("{full}", rn.files(...)), or rn.manual() for a table that is loaded by hand'
        linker.wrong("PLAN_UNKNOWN_INPUT", what, draft.place, fix)
        return
    fix = f"write `{close}`"
    if draft.sql is None:
        fix = f'pass inputs={{"{parameter}": "{close}"}}'
        last = close.rpartition(".")[2]
        if "." not in text and last != text and len(linker.by_last[last]) == 1:
            fix = f"rename the parameter to `{last}`, or {fix}"
    linker.wrong("PLAN_UNKNOWN_INPUT", f"{what}; close: `{close}`", draft.place, fix)


def _check(linker: _Linker, draft: Draft, check: Check) -> Check:
    """Return a check whose `table` argument is a whole name."""
    named = dict(check.arguments).get("table")
    if named is None:
        return check
    meant = [TableName.stored(named)] if "." in named else linker.by_last.get(named, [])
    known = [table for table in meant if table in linker.makers]
    if len(known) == 1:
        return replace(check, arguments=(("table", str(known[0])), *check.arguments[1:]))
    if named not in linker.claimed:
        close = nearest(named, [str(table) for table in linker.makers])
        what = f"`{check.text}` of task `{draft.shown}` refers to `{named}`, "
        what += "which may be several tables" if known else "but no source or task makes it"
        fix = "name the table with its layer and its column: ods.sellers.id"
        place = check.place or draft.place
        linker.wrong("DECLARE_CHECK", what + (f"; close: `{close}`" if close else ""), place, fix)
    return check


def _refuse_quarantines(linker: _Linker, flow: Flow) -> None:
    taken: dict[TableName, Task | Source] = {}
    for made in flow:
        is_used = made.on_bad == QUARANTINE if isinstance(made, Source) else made.quarantine is not None
        if not is_used:
            continue
        other = taken.setdefault(quarantine_of(made.table), made)
        if other is not made:
            what = f"`{other.table}` and `{made.table}` would both put rows into `{quarantine_of(made.table)}`"
            linker.wrong("DECLARE_QUARANTINE", what, made.place, "rename one of the tables")


def _refuse_loose_ends(linker: _Linker, flow: Flow) -> None:
    """Tell which sinks and schedules name tables that nothing makes, and what shares a name."""
    named: list[tuple[str, str, Place]] = [
        (f"sink of `{sink.table}`", str(sink.table), sink.place) for sink in flow.sinks
    ]
    rename = "rename one of them"
    _refuse_same(linker, "sink", flow.sinks, 'give one another name: rn.sink(..., name="...")')
    _refuse_same(linker, "schedule", flow.schedules, rename)
    _refuse_same(linker, "alert", flow.alerts, rename)
    for schedule in flow.schedules:
        named += [(f"schedule {shown(schedule.name)}", table, schedule.place) for table in schedule.on_change]
    for owner, table, place in named:
        if TableName.stored(table) not in linker.makers and table not in linker.claimed:
            close = nearest(table, [str(made) for made in linker.makers])
            what = f"the {owner} names `{table}`, but no source or task makes it"
            linker.wrong(
                "PLAN_UNKNOWN_TABLE", what + (f"; close: `{close}`" if close else ""), place, "correct the name"
            )


def _refuse_same(linker: _Linker, kind: str, made: Iterable[Sink | Schedule | Alert], fix: str) -> None:
    seen: dict[str, Place] = {}
    for one in made:
        first = seen.setdefault(one.name, one.place)
        if first is not one.place:
            what = f"two {kind}s are called {shown(one.name)}: at {first} and at {one.place}"
            linker.wrong(f"DECLARE_{kind.upper()}", what, one.place, fix)


def _refuse_unused(linker: _Linker, registry: Registry, origins: Mapping[str, ParamOrigin]) -> None:
    known = dict.fromkeys(_param_names(registry))
    for name, origin in origins.items():
        if name not in known:
            close = nearest(name, known)
            is_set = origin.at == FROM_SET
            given = f"--set {name}=..." if is_set else f"`{name}` of [params]"
            what = f"{given} reaches no task: none has a keyword parameter `{name}`"
            what += f"; close: `{close}`" if close else ""
            fix = f"the parameters are: {', '.join(known)}" if known else "no task has keyword parameters"
            at = None if is_set else origin.at
            linker.mistakes.append(Mistake("DECLARE_PARAM_UNKNOWN", what, at=at, fix=fix))


def _param_names(registry: Registry) -> Iterator[str]:
    for draft in registry.tasks:
        for param in draft.params:
            yield param.name

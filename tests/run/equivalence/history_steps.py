"""What may happen to a project between two moments at which the law must hold."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from runnel.errors import Conflict
from tests.run.equivalence.project_model import Source
from tests.run.equivalence.source_rows import Focus, corrected, new_row

if TYPE_CHECKING:
    from tests.run.equivalence.history_machine import Machine

Happening = Callable[["Machine", Random], None]


def append(machine: "Machine", chance: Random, branch: str = "main") -> None:
    """A file comes, or rows are loaded by hand, about few slices."""
    focus = Focus(chance)
    rows = [new_row(chance, machine.number(), focus) for _ in range(chance.randint(1, 5))]
    machine.add(chance.choice(machine.world.sources), rows, branch)


def change(machine: "Machine", chance: Random) -> None:
    """Rows of a file are corrected, moved to other slices, taken out, or come late."""
    paths = machine.paths(chance.choice(machine.world.sources))
    if not paths:
        return append(machine, chance)
    path, focus = chance.choice(paths), Focus(chance)
    rows = list(machine.files[path])
    for place in chance.sample(range(len(rows)), min(len(rows), chance.randint(0, 2))):
        rows[place] = corrected(chance, rows[place], focus)
    for _ in range(chance.randint(0, 2)):
        if rows and chance.random() < 0.5:
            rows.pop(chance.randrange(len(rows)))
        else:
            rows.append(new_row(chance, machine.number(), focus))
    return machine.put(path, rows)


def remove(machine: "Machine", chance: Random) -> None:
    """A file goes; the last one stays."""
    paths = machine.paths(chance.choice(machine.world.sources))
    if len(paths) > 1:
        machine.drop(chance.choice(paths))
    else:
        append(machine, chance)


def rename(machine: "Machine", chance: Random) -> None:
    """A file gets another name."""
    source = chance.choice(machine.world.sources)
    if paths := machine.paths(source):
        path = chance.choice(paths)
        rows = machine.files[path]
        machine.drop(path)
        machine.put(f"data/{source.name}/f{machine.number()}.{source.form}", rows)


def several(machine: "Machine", chance: Random) -> None:
    """Several things happen before a run."""
    for _ in range(chance.randint(2, 3)):
        edit(machine, chance)


def edit(machine: "Machine", chance: Random) -> None:
    """Some data changes."""
    chance.choice((append, change, change, remove))(machine, chance)


def gain_column(machine: "Machine", chance: Random) -> None:
    """Rows come with a column that nobody has declared."""
    focus = Focus(chance)
    rows = [{**new_row(chance, machine.number(), focus), "note": chance.choice(("x", "y", None))} for _ in range(3)]
    rows[0]["note"] = "first"
    machine.add(chance.choice(machine.world.sources), rows)


def respec(machine: "Machine", chance: Random) -> None:
    """A table is partitioned otherwise; data changes too.

    Of sources only those whose files are all there: rows that can't be read again can't be parted otherwise.
    """
    tables = [source for source in machine.world.sources if source.form != "manual" and not machine.has_lost(source)]
    if tables and chance.random() < 0.4:
        source = chance.choice(tables)
        machine.declare(machine.world.having(replace(source, partition=() if source.partition else ("day",))))
    elif able := [task for task in machine.world.tasks if "day" in task.columns or "region" in task.columns]:
        task = chance.choice(able)
        options = dict(task.options)
        if options.pop("partition", None) is None:
            options["partition"] = ["day" if "day" in task.columns else "region"]
        machine.declare(machine.world.having(replace(task, options=tuple(options.items()))))
    if chance.random() < 0.5:
        edit(machine, chance)


def recode(machine: "Machine", chance: Random) -> None:
    """A task's code changes, or there is one more; perhaps data changes too."""
    from tests.run.equivalence.random_histories import with_task

    if chance.random() < 0.3:
        machine.declare(with_task(machine.world, chance))
    else:
        task = chance.choice(machine.world.tasks)
        machine.declare(machine.world.having(replace(task, constant=task.constant + 1)))
    if chance.random() < 0.5:
        edit(machine, chance)


def compact(machine: "Machine", chance: Random) -> None:
    """Small files are put together: nothing is to be done. Then data changes."""
    from runnel.lake.upkeep.compact.compact import compact

    with machine.lake() as lake:
        compact(lake.store)
    machine.compare()
    machine.rest()
    edit(machine, chance)


def sweep(machine: "Machine", chance: Random) -> None:
    """Old versions go. Then data changes."""
    from runnel.lake.upkeep.gc.collect import gc
    from runnel.lake.upkeep.gc.retention import Retention

    with machine.lake() as lake:
        for _ in range(2):
            gc(lake.store, Retention(commits="0 seconds", failed="0 seconds", grace="0 seconds"))
    machine.compare()
    machine.rest()
    edit(machine, chance)


def revert(machine: "Machine", chance: Random) -> None:
    """A run, or rows that were loaded by hand, are undone; sources keep their position."""
    before = machine.project.commits()
    edit(machine, chance)
    if chance.random() < 0.7:
        machine.settle()
    machine.is_told = False
    if machine.project.commits() > before:
        with machine.lake() as lake:
            lake.revert("main")
    if chance.random() < 0.3:
        edit(machine, chance)


def erase(machine: "Machine", chance: Random) -> None:
    """Rows vanish from all versions of a source."""
    from runnel.lake.upkeep.erase.erase import erase
    from runnel.names import TableName

    machine.is_told = False
    table = TableName.parse(chance.choice(machine.world.sources).table)
    with machine.lake() as lake:
        erase(lake.store, table, f"id in ({', '.join(map(str, chance.sample(range(1, 60), 6)))})")


def merge(machine: "Machine", chance: Random) -> None:
    """Two branches change data and code, each in its own way, and are merged."""
    name = f"dev{machine.number()}"
    with machine.lake() as lake:
        lake.branch(name)
    _on_branch(machine, chance, name)
    if chance.random() < 0.8:
        edit(machine, chance)
        if chance.random() < 0.8:
            machine.settle()
    machine.is_told = False
    try:
        with machine.lake() as lake:
            lake.merge(name, run=True)
    except Conflict as conflict:
        machine.story.append(f"conflict: {conflict.what}")


def _on_branch(machine: "Machine", chance: Random, name: str) -> None:
    before = dict(machine.files)
    if chance.random() < 0.3:
        task = chance.choice(machine.world.tasks)
        machine.declare(machine.world.having(replace(task, constant=task.constant + 1)))
    append(machine, chance, name)
    if chance.random() < 0.5:
        change(machine, chance)
    ran = machine.run(branch=name)
    assert ran.state in ("succeeded", "nothing"), machine.told(f"the run on {name} failed", *map(str, ran.errors))
    machine.compare(at=name)
    if chance.random() < 0.5:
        for path in set(machine.files) - set(before):
            machine.drop(path)
        for path, rows in before.items():
            machine.put(path, rows)


def fail_code(machine: "Machine", chance: Random) -> None:
    """A task breaks while data changes; nothing is published. Then it is mended."""
    task = chance.choice(machine.world.tasks)
    edit(machine, chance)
    whole = machine.world
    machine.declare(whole.having(replace(task, is_broken=True)))
    machine.run_in_vain()
    if chance.random() < 0.4:
        edit(machine, chance)
    machine.declare(whole)


def fail_check(machine: "Machine", chance: Random) -> None:
    """Rows come that a check stops; nothing is published. Then they are corrected."""
    tables = {source.table: source for source in machine.world.sources if source.form != "manual"}
    guarded = [name for task in machine.world.tasks if task.is_guarded for name in task.inputs if name in tables]
    if not guarded:
        return fail_code(machine, chance)
    source: Source = tables[chance.choice(guarded)]
    row = {**new_row(chance, machine.number(), Focus(chance)), "amount": 7_000_003}
    path = machine.add(source, [row])
    assert path is not None
    machine.run_in_vain()
    if chance.random() < 0.5:
        edit(machine, chance)
    if path in machine.files:
        machine.put(path, [{**row, "amount": 3}])
    return None


def partial(machine: "Machine", chance: Random) -> None:
    """Only a part is computed; the rest follows several changes later."""
    for _ in range(2):
        edit(machine, chance)
        chosen = chance.choice(machine.world.tasks).table
        ran = machine.run(f"+{chosen}")
        assert ran.state in ("succeeded", "nothing"), machine.told("a partial run failed", *map(str, ran.errors))
    edit(machine, chance)


STEPS: dict[str, tuple[Happening, int]] = {
    "append": (append, 3),
    "change": (change, 4),
    "remove": (remove, 1),
    "rename": (rename, 1),
    "several": (several, 2),
    "gain column": (gain_column, 1),
    "respec": (respec, 2),
    "recode": (recode, 2),
    "compact": (compact, 2),
    "sweep": (sweep, 1),
    "revert": (revert, 2),
    "erase": (erase, 1),
    "merge": (merge, 2),
    "fail code": (fail_code, 1),
    "fail check": (fail_check, 1),
    "partial": (partial, 2),
}
WEIGHTS = {kind: weight for kind, (_, weight) in STEPS.items()}

"""Random projects and histories. A seed says it all, so that whatever fails can be had again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.run.equivalence.history_steps import WEIGHTS
from tests.run.equivalence.project_model import Source, Task, World
from tests.run.equivalence.task_kinds import KINDS, Input, of_source


@dataclass(frozen=True)
class Step:
    """Something that happens to a project: one of STEPS, with the seed of its own chances."""

    kind: str
    seed: int


@dataclass(frozen=True)
class History:
    """A project, the seed of its first rows, and what happens to it.

    With few rows most slices change, keys are few, and tables are not parted; `most` and `few` say when that counts as
    such, and `layout` how tables are parted nevertheless.
    """

    world: World
    seed: int
    steps: tuple[Step, ...]
    most: float | None = None
    few: int | None = None
    layout: str | None = None

    def __str__(self) -> str:
        steps = ", ".join(f"{step.kind} ({step.seed})" for step in self.steps)
        return f"seed {self.seed}: {steps}; most {self.most}, few {self.few}, layout {self.layout}\n{self.world}"


def history(seed: int, *, tasks: tuple[int, int] = (5, 7), steps: tuple[int, int] = (2, 4)) -> History:
    """Return the history of a seed, with about so many tasks and steps."""
    chance = Random(seed)
    world = new_world(chance, chance.randint(*tasks))
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=chance.randint(*steps))
    most, few = chance.choice(((None, None), (100.0, None), (100.0, None), (100.0, 1)))
    happened = tuple(Step(kind, chance.randrange(1000)) for kind in kinds)
    return History(world, seed, happened, most, few, chance.choice((None, "slices", "buckets", "buckets")))


def new_world(chance: Random, tasks: int) -> World:
    """Return sources and so many tasks over them, several layers deep."""
    sources = tuple(_source(chance, number) for number in range(1, chance.choice((1, 2, 2, 3)) + 1))
    world = World(sources)
    while len(world.tasks) < tasks:
        world = with_task(world, chance)
    return world


def with_task(world: World, chance: Random) -> World:
    """Return a world with one more task."""
    leaves = [task for task in world.tasks if not task.uncompared]
    made = [Input(task.table, task.columns, task.is_unique) for task in leaves]
    inputs = [*(of_source(source.table) for source in world.sources), *made, *made[-3:]]  # layers rather than breadth
    kinds = [kind for kind, _ in KINDS.values()]
    task: Task | None = None
    while task is None:
        task = chance.choices(kinds, [weight for _, weight in KINDS.values()])[0](inputs, chance)
    number = world.made + 1
    return replace(world, tasks=(*world.tasks, replace(task, table=f"dws.t{number}")), made=number)


def reduced(found: History, fails: Callable[[History], bool]) -> History:
    """Return a smaller history that still fails: steps and tasks that are not needed are left out."""
    smaller = True
    while smaller:
        smaller = False
        for less in _smaller(found):
            if fails(less):
                found, smaller = less, True
                break
    return found


def _smaller(found: History) -> Iterator[History]:
    for place in range(len(found.steps)):
        yield replace(found, steps=found.steps[:place] + found.steps[place + 1 :])
    read = {name for task in found.world.tasks for name in task.inputs}
    for task in found.world.tasks:
        if task.table not in read and len(found.world.tasks) > 1:
            yield replace(found, world=found.world.without(task.table))


def _source(chance: Random, number: int) -> Source:
    partition = chance.choice(((), (), ("day",), ("day",), ("region",)))
    form, removed = chance.choice(("csv", "csv", "jsonl", "manual")), chance.choice(("keep", "delete"))
    return Source(f"ods.s{number}", form, removed, partition)

"""Random histories of a source, each from a seed."""

import random
from dataclasses import dataclass

from tests.connect.source_histories.history_machine import CONTENTS, Kind, Step

FILES = "abcdef"
AFTERWARDS = {"revert": 5, "rewind": 2, "release": 5, "compact": 3, "erase": 2, "fork": 4, "merge": 5, "nothing": 1}


@dataclass(frozen=True)
class History:
    """How a source is declared, and what happens to it."""

    kind: Kind
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "; ".join(" ".join(map(str, step)) for step in self.steps)
        return f"removed={self.kind.removed}, is_log={self.kind.is_log}: {steps}"


def history(seed: int, rounds: tuple[int, int]) -> History:
    """Return the history of a seed: rounds of changes of files, a run, and something that people do afterwards."""
    chance = random.Random(seed)
    kind = Kind(chance.choice(["keep", "delete"]), chance.random() < 0.3)
    steps: list[Step] = [("put", name, chance.choice(sorted(CONTENTS))) for name in FILES[: chance.randint(1, 4)]]
    steps.append(("run", "main"))
    for _ in range(chance.randint(*rounds)):
        steps += [_file_step(chance) for _ in range(chance.choice([0, 1, 1, 2, 3, 5]))]
        steps.append(("run", _branch(chance)))
        for _ in range(chance.choice([1, 1, 2])):
            steps += _afterwards(chance)
    return History(kind, (*steps, ("run", "main"), ("run", "dev")))


def _file_step(chance: random.Random) -> Step:
    action = chance.choices(["put", "move", "remove"], [6, 3, 2])[0]
    if action == "put":
        return action, chance.choice(FILES), chance.choice(sorted(CONTENTS))
    return (action, *chance.sample(FILES, 2 if action == "move" else 1))


def _afterwards(chance: random.Random) -> list[Step]:
    action = chance.choices(list(AFTERWARDS), list(AFTERWARDS.values()))[0]
    if action == "revert":
        return [(action, chance.choice([0, 0, 0, 1, 2, 3]), _branch(chance))]
    if action == "rewind":
        return [(action, chance.choice([1, 1, 2, 3, 9]), _branch(chance))]
    if action == "release":
        return [(action, name, _branch(chance)) for name in chance.sample(FILES, 2)]
    if action == "compact":
        return [(action, _branch(chance))]
    if action == "erase":
        return [(action, chance.choice([1, 2, 5, 8]))]
    return [(action,)] if action in ("fork", "merge") else []


def _branch(chance: random.Random) -> str:
    return chance.choice(["main", "main", "dev"])

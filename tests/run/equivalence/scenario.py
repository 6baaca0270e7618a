"""Let a history happen to a fresh project."""

import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.run.equivalence.history_machine import Machine
from tests.run.equivalence.history_steps import STEPS
from tests.run.equivalence.mutations import swift, thresholds
from tests.run.equivalence.random_histories import History, reduced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def play(history: History, spark: "SparkSession") -> Machine:
    """Let a history happen; the law must hold after each of its steps."""
    how = thresholds(most=history.most, few=history.few, layout=history.layout)
    with tempfile.TemporaryDirectory() as folder, how, swift():
        machine = Machine(Path(folder), spark, history.world)
        machine.story.append(f"seed {history.seed}")
        machine.begin(history.seed)
        for step in history.steps:
            machine.story.append(f"{step.kind} ({step.seed})")
            STEPS[step.kind][0](machine, Random(step.seed))
            machine.settle()
        return machine


def smallest(history: History, spark: "SparkSession") -> str:
    """Return what is left of a history that fails when all is left out that is not needed for it."""
    told: list[str] = []

    def fails(less: History) -> bool:
        try:
            play(less, spark)
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
            return True
        return False

    fails(history)
    return f"{reduced(history, fails)}\n{told[-1] if told else 'it does not fail'}"

"""Bugs to plant in the slice logic, and other thresholds for it, so that few rows try what many rows would."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from runnel.model.slice_key import ChangedSlice
from runnel.run.slices.find_changed import ChangedSlices
from runnel.run.slices.find_changed import find_changed_slices as real_find
from runnel.run.slices.keys import SliceKeys
from runnel.run.slices.keys import _in_values_sql as real_among
from runnel.run.write.multiset_removal import CopyRemoval

SWIFT = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def swift() -> Iterator[None]:
    """Let runs have sessions for few rows: compiling queries takes longer than computing them."""
    with patch("runnel.run.run_context.session_conf", lambda spark: SWIFT | {"spark.sql.shuffle.partitions": "2"}):
        yield


@contextmanager
def thresholds(*, most: float | None = None, few: int | None = None, layout: str | None = None) -> Iterator[None]:
    """Compute by slices until more than `most` of them changed, and join with their keys when more than `few` did.

    With `few` no table is small either, so that rows are taken out of it. Small tables get the `layout` of large ones,
    by slices or in buckets.
    """
    values: list[tuple[str, float | None]] = [
        ("runnel.plan.slices.MOST", most),
        ("runnel.plan.decisions.slices.MOST", most),
        ("runnel.plan.decisions.task.COPIES_SHARE", most),
        ("runnel.run.slices.find_changed.FEW", few),
        ("runnel.run.slices.replace._SMALL_BYTES", None if few is None else 0),
        ("runnel.run.slices.partition_layout._LEAST_BYTES", 1 if layout == "slices" else None),
        ("runnel.run.slices.partition_layout._BUCKET_BYTES", 1 if layout == "buckets" else None),
    ]
    with _patched({name: value for name, value in values if value is not None}):
        yield


def _finding(kept: Callable[[ChangedSlice], bool]) -> Callable[..., ChangedSlices]:
    """Find only some of the changed slices."""

    def find(*arguments: Any) -> ChangedSlices:
        found = real_find(*arguments)
        keys = tuple(one.key for slices in found.changes.values() for one in slices if kept(one))
        return replace(found, keys=SliceKeys(len(keys), keys))

    return find


def _first_input(task_run: Any, *rest: Any) -> ChangedSlices:
    return real_find(replace(task_run, step=replace(task_run.step, changed=task_run.step.changed[:1])), *rest)


def _uncounted(keys: Any, number: int) -> Any:
    return tuple(keys)


def _nulls_lost(expression: str, values: Any) -> str:
    known = [value for value in values if value is not None]
    return real_among(expression, known) if known else "false"


MUTATIONS: dict[str, dict[str, Any]] = {
    "rows that went are forgotten": {
        "runnel.run.task.compute.find_changed_slices": _finding(lambda one: one.rows_added > 0)
    },
    "rows that came are forgotten": {
        "runnel.run.task.compute.find_changed_slices": _finding(lambda one: one.rows_removed > 0)
    },
    "only one input is looked at": {"runnel.run.task.compute.find_changed_slices": _first_input},
    "lookback is not counted on": {"runnel.plan.slices.add_following_keys": _uncounted},
    "earlier slices are not read": {"runnel.run.slices.keys.SliceKeys.with_earlier": lambda keys, back: keys},
    "null keys are lost": {"runnel.run.slices.keys._in_values_sql": _nulls_lost},
    "only one bucket is looked at": {"runnel.lake.diff.changed_slices.BucketLayout.bucket_of": lambda found, value: 0},
    "old rows stay": {
        "runnel.run.slices.replace.exclude_slices": lambda frame, keys, expressions: frame,
        "runnel.run.task.refresh_table.remove_slices": lambda context, task, keys, base, rows: base,
    },
    "copies stay": {
        "runnel.run.task.refresh_table.remove_row_copies": lambda context, task, removed, base: CopyRemoval(
            base, removed.limit(0)
        ),
    },
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Have a bug in the slice logic inside of a `with`."""
    with _patched(MUTATIONS[name]):
        yield


@contextmanager
def _patched(values: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for path, value in values.items():
            stack.enter_context(patch(path, value))
        yield

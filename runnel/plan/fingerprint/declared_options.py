"""What a task declares beside its code: inputs, parameters, options that touch its data, checks. Pure."""

from collections.abc import Iterator
from dataclasses import fields

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Options, Source, Task
from runnel.plan.fingerprint.code.code_unit import Part, Unit, digest, mark
from runnel.plan.fingerprint.code.code_walker import Reach

# What only says when, by whom or how often it runs is not here.
_OPTIONS = ("by", "by_input", "reference", "lookback", "rowwise", "key", "volatile", "stream", "watermark", "output")
OPTIONS = (*_OPTIONS, "schema", "partition", "sort", "properties")
_LONGEST = 60
_DEFAULTS = {each.name: getattr(Options(), each.name) for each in fields(Options)}


def declared(task: Task, reach: Reach, secrets: frozenset[str]) -> tuple[list[str], list[Part], list[Unit]]:
    """Return what a task declares: as texts to hash, as parts to compare, and pieces that its parameters hold."""
    texts = [f"table {task.table}", f"spark {task.takes_spark}"]
    parts: list[Part] = []
    units: list[Unit] = []
    for parameter, table in task.inputs:
        parts.append(Part("input", parameter, mark(str(table)), shown=str(table)))
        texts.append(f"input {parameter} {table}")
    for name, value in task.params:
        writer = reach.writer(lenient=True)
        text = writer.write(value)
        units.extend(writer.refs)
        parts.append(Part("parameter", name, mark(text), shown=_shown(value, secrets)))
        texts.append(f"parameter {name} {text}")
    for kind, name, text in (*_options(task.options, reach), *_checks(task, reach)):
        parts.append(Part(kind, name, mark(text)))
        texts.append(f"{kind} {name} {text}")
    return texts, parts, units


def source_fingerprint(source: Source) -> str:
    """Return how a source's files are read: where they lie and when they are looked for doesn't matter."""
    origin = source.origin
    if not isinstance(origin, Files):
        return digest(["manual", repr(origin.schema)])
    return digest(["files", origin.format, repr(origin.schema), repr(sorted(origin.options)), *source.partition])


def _options(options: Options, reach: Reach) -> Iterator[tuple[str, str, str]]:
    for name in OPTIONS:
        value = getattr(options, name)
        if value != _DEFAULTS[name]:  # so that an option that is new to Runnel changes no one's fingerprint
            yield "option", name, reach.writer(lenient=True).write(value)


def _checks(task: Task, reach: Reach) -> Iterator[tuple[str, str, str]]:
    covered = [(check.kind, check.columns, check.condition, check.arguments, check.on_fail) for check in task.checks]
    if covered:
        yield "checks", "", reach.writer(lenient=True).write(covered)


def _shown(value: object, secrets: frozenset[str]) -> str | None:
    """Return a parameter's value for people, or nothing where it is secret or long."""
    text = repr(value)
    is_secret = any(secret and secret in text for secret in secrets)
    return text if len(text) <= _LONGEST and not is_secret and " at 0x" not in text else None

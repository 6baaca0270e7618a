"""Collect what a task declares besides its code: inputs, parameters, options that affect its data, checks. Pure."""

from collections.abc import Iterator
from dataclasses import fields

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source, Task, TaskOptions
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, hash_texts, short_hash
from runnel.plan.fingerprint.code.code_walker import CodeWalker

# Options about when, by whom or how often a task runs are left out.
_OPTIONS = ("by", "by_input", "reference", "lookback", "rowwise", "key", "volatile", "stream", "watermark", "output")
FINGERPRINTED_OPTIONS = (*_OPTIONS, "schema", "partition", "sort", "properties")
_WITHOUT_EFFECT_ON_ROWS = ("multiline",)  # options of files that say only how they can be read
_MAX_DISPLAY_LENGTH = 60
_DEFAULTS = {each.name: getattr(TaskOptions(), each.name) for each in fields(TaskOptions)}


def collect_declared(
    task: Task, walker: CodeWalker, secrets: frozenset[str]
) -> tuple[list[str], list[FingerprintPart], list[CodeUnit]]:
    """Return what a task declares: texts to hash, parts to compare, and code units that its parameters refer to."""
    texts = [f"table {task.table}", f"spark {task.takes_spark}"]
    parts: list[FingerprintPart] = []
    units: list[CodeUnit] = []
    for parameter, table in task.inputs:
        parts.append(FingerprintPart("input", parameter, short_hash(str(table)), display_text=str(table)))
        texts.append(f"input {parameter} {table}")
    for name, value in task.params:
        writer = walker.create_value_writer(lenient=True)
        text = writer.write(value)
        units.extend(writer.refs)
        parts.append(FingerprintPart("parameter", name, short_hash(text), display_text=_display_value(value, secrets)))
        texts.append(f"parameter {name} {text}")
    for kind, name, text in (*_iter_options(task.options, walker), *_iter_checks(task, walker)):
        parts.append(FingerprintPart(kind, name, short_hash(text)))
        texts.append(f"{kind} {name} {text}")
    return texts, parts, units


def fingerprint_source(source: Source) -> str:
    """Fingerprint how a source's files are read, without where they are and how often the source is polled."""
    origin = source.origin
    if not isinstance(origin, Files):
        return hash_texts(["manual", repr(origin.schema)])
    options = sorted(option for option in origin.options if option[0] not in _WITHOUT_EFFECT_ON_ROWS)
    return hash_texts(["files", origin.format, repr(origin.schema), repr(options), *source.partition])


def _iter_options(options: TaskOptions, walker: CodeWalker) -> Iterator[tuple[str, str, str]]:
    for name in FINGERPRINTED_OPTIONS:
        value = getattr(options, name)
        if value != _DEFAULTS[name]:  # so that a new option of Runnel changes no fingerprint
            yield "option", name, walker.create_value_writer(lenient=True).write(value)


def _iter_checks(task: Task, walker: CodeWalker) -> Iterator[tuple[str, str, str]]:
    covered = [(check.kind, check.columns, check.condition, check.arguments, check.on_fail) for check in task.checks]
    if covered:
        yield "checks", "", walker.create_value_writer(lenient=True).write(covered)


def _display_value(value: object, secrets: frozenset[str]) -> str | None:
    """Return a parameter's value for people, or None if it is secret or too long."""
    text = repr(value)
    is_secret = any(secret and secret in text for secret in secrets)
    return text if len(text) <= _MAX_DISPLAY_LENGTH and not is_secret and " at 0x" not in text else None

"""Resolve the values of a task's parameters: from the project's settings, else the function's default.

Pure. Text from `--set` and the environment is converted to the type of the parameter's annotation or default.
"""

import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from runnel.declare.model.task_draft import NO_DEFAULT, Param
from runnel.errors import Mistake
from runnel.names import quote_value

_BY_NAME: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "str": str, "Decimal": Decimal, "date": date, "datetime": datetime,
    "decimal.Decimal": Decimal, "datetime.date": date, "datetime.datetime": datetime,
}  # fmt: skip
_TYPE_LABELS = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", Decimal: "a decimal number",
    date: "a date such as 2026-01-02", datetime: "a time such as 2026-01-02T08:00",
}  # fmt: skip
_BOOL_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def resolve_value(param: Param, settings: Mapping[str, Any], owner: str, *, is_hidden: bool = False) -> Any:
    """Return the effective value of a parameter; raise a mistake if it is wrong, without the value if `is_hidden`."""
    kind = infer_type(param)
    if param.name in settings:
        value, origin = settings[param.name], "is set to"
    elif param.default is NO_DEFAULT:
        what = f"{owner}: the parameter `{param.name}` has no value"
        raise Mistake("DECLARE_PARAM", what, fix=f"give it a default, or set it: [params] {param.name} = ...")
    else:
        value, origin = param.default, "has the default"
    if value is None and param.name not in settings:
        return None
    try:
        return convert_value(value, kind)
    except (ValueError, InvalidOperation):
        expected = _TYPE_LABELS.get(kind, getattr(kind, "__name__", str(kind))) if kind else ""
        displayed = "a value that is not shown" if is_hidden and param.name in settings else quote_value(value)
        what = f"{owner}: the parameter `{param.name}` {origin} {displayed}, but must be {expected}"
        raise Mistake("DECLARE_PARAM", what, fix=f"set it to {expected}") from None


def infer_type(param: Param) -> type | None:
    """Return the type of a parameter, from its annotation or else its default; None for any type.

    >>> infer_type(Param("a", 0, "float | None")), infer_type(Param("a", 0)), infer_type(Param("a", None))
    (<class 'float'>, <class 'int'>, None)
    """
    annotation = param.annotation
    if isinstance(annotation, str):
        names = [part.strip() for part in annotation.removeprefix("Optional[").removesuffix("]").split("|")]
        named_types = [_BY_NAME.get(name) for name in names if name != "None"]
        return named_types[0] if len(named_types) == 1 else None
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        inner = [member for member in typing.get_args(annotation) if member is not types.NoneType]
        annotation = inner[0] if len(inner) == 1 else None
    if annotation is NO_DEFAULT and param.default is not NO_DEFAULT and param.default is not None:
        return type(param.default)
    base_type = typing.get_origin(annotation) or annotation
    return (
        base_type if isinstance(base_type, type) and base_type is not NO_DEFAULT and base_type is not object else None
    )


def convert_value(value: Any, kind: type | None) -> Any:
    """Convert a value to a type, or raise ValueError.

    >>> convert_value("5", int), convert_value(1, float), convert_value("2026-01-02", date)
    (5, 1.0, datetime.date(2026, 1, 2))
    """
    if kind is None or kind not in _TYPE_LABELS:
        if kind is None or isinstance(value, kind) or not isinstance(value, str | int | float | bool | list | dict):
            return value
        raise ValueError
    if type(value) is kind:
        return value
    if isinstance(value, str):
        return _FROM_TEXT[kind](value.strip())
    if isinstance(value, bool):
        raise ValueError
    if kind in (float, Decimal) and isinstance(value, int | float | Decimal):
        return kind(str(value))
    if isinstance(value, kind) and kind is not date:  # Python's datetime is a subclass of date
        return value
    raise ValueError


def _parse_bool(text: str) -> bool:
    if text.lower() not in _BOOL_WORDS:
        raise ValueError
    return _BOOL_WORDS[text.lower()]


_FROM_TEXT: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _parse_bool,
    str: str,
    Decimal: Decimal,
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
}

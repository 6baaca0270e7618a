"""Write values as text that is the same in every process, wherever the project's folder is.

Objects of Spark, numpy and pandas are recognized by the name of their module; none of them is imported. The caller
passes in how to find the code units of the project's functions, classes and modules.
"""

import copyreg
import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from runnel.plan.fingerprint.code.code_unit import CodeUnit
from runnel.plan.fingerprint.project_files import ProjectFiles

_PLAIN = (bool, int, float, complex, bytes, bytearray, type(None), type(Ellipsis), type(NotImplemented), range, slice)
# Types whose state does not affect what a task computes.
_STATELESS_TYPES = {
    ("logging", "Logger"),
    ("logging", "RootLogger"),
    ("logging", "LoggerAdapter"),
    ("_thread", "lock"),
    ("_thread", "RLock"),
    ("_thread", "_local"),
    ("builtins", "object"),
    ("builtins", "weakref"),
    ("contextvars", "ContextVar"),
    ("functools", "_lru_list_elem"),
}
_SESSIONS = {"SparkSession", "SparkContext", "SQLContext", "RuntimeConfig"}
# A class of ours that moves keeps the name under which lakes stored it, else every result would be computed again.
_STORED_CLASS_NAMES = {
    "runnel.declare.model.column_types.Column": "runnel.declare.types.Column",
    "runnel.declare.model.column_types.SparkType": "runnel.declare.types.SparkType",
    "runnel.declare.model.secret.Secret": "runnel.declare.secret.Secret",
}
_MAX_DEPTH = 100
_MAX_VALUES = 1_000_000


class ValueWriter:
    """Writes one value as text. `refs` are the code units in it, `unknown` the types that it could not inspect."""

    def __init__(
        self, project: ProjectFiles, find_unit: Callable[[object], CodeUnit | None], *, lenient: bool = False
    ) -> None:
        self.project = project
        self.find_unit = find_unit
        self.lenient = lenient  # write an unknown type by its name
        self.refs: list[CodeUnit] = []
        self.unknown: list[str] = []
        self._open_ids: list[int] = []
        self._count = 0

    def write(self, value: object) -> str:
        """Return the text of a value."""
        kind = type(value)
        if kind is str:
            return f"str:{self.project.strip_root(value)!r}"  # type: ignore[arg-type]
        if kind in _PLAIN:
            return f"{kind.__name__}:{value!r}"
        self._count += 1
        if id(value) in self._open_ids:
            return f"circle:{len(self._open_ids) - self._open_ids.index(id(value))}"
        if len(self._open_ids) > _MAX_DEPTH or self._count > _MAX_VALUES:
            return self._write_unknown(value)
        self._open_ids.append(id(value))
        try:
            return self._write_nested(value)
        except Exception:  # a user's __reduce__, __repr__ or property may do anything
            return self._write_unknown(value)
        finally:
            self._open_ids.pop()

    def _write_nested(self, value: object) -> str:
        for kinds, write in _WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
        module = type(value).__module__.partition(".")[0]
        foreign = _PACKAGE_WRITERS.get(module)
        if foreign is not None:
            return foreign(self, value)
        if dataclasses.is_dataclass(value):
            return self._write_dataclass(value)
        return self._write_object(value)

    def _write_items(self, name: str, values: Iterable[object]) -> str:
        return f"{name}[{','.join(self.write(value) for value in values)}]"

    def _write_sequence(self, value: list[Any] | tuple[Any, ...]) -> str:
        return self._write_items(self._write_kind(value), value)

    def _write_mapping(self, value: Mapping[Any, Any]) -> str:
        pairs = (f"{self.write(key)}={self.write(item)}" for key, item in value.items())
        text = f"{self._write_kind(value)}{{{','.join(pairs)}}}"
        factory = getattr(value, "default_factory", None)
        return text if factory is None else f"{text} or {self.write(factory)}"

    def _write_set(self, value: set[Any] | frozenset[Any]) -> str:
        entries: list[tuple[str, tuple[str, ...], list[CodeUnit]]] = []
        refs_before = self.refs
        for item in value:
            self.refs = []
            text = self.write(item)
            entries.append((text, tuple(unit.label for unit in self.refs), self.refs))
        entries.sort(key=lambda entry: entry[:2])
        self.refs = refs_before + [unit for _, _, refs in entries for unit in refs]
        return f"{self._write_kind(value)}<{','.join(text for text, _, _ in entries)}>"

    def _write_kind(self, value: object) -> str:
        kind = type(value)
        return kind.__name__ if kind.__module__ == "builtins" else self._write_class(kind)

    def _write_class(self, kind: type) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        return self._write_reference("class", kind) or f"class:{_STORED_CLASS_NAMES.get(name, name)}"

    def _write_reference(self, label: str, value: object) -> str | None:
        unit = self.find_unit(value)
        if unit is None:
            return None
        self.refs.append(unit)
        return f"{label}@{unit.annotations}"

    def _write_function(self, value: FunctionType) -> str:
        return self._write_reference("function", value) or self._write_installed_function(value)

    def _write_installed_function(self, value: FunctionType) -> str:
        """Write a function of a package by its name, with the functions that it wraps, found in its closure."""
        name = f"{value.__globals__.get('__name__')}.{value.__code__.co_qualname}"
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:
                cells.append(None)
        was_lenient, self.lenient = self.lenient, True
        text = self._write_items(f"function:{name}", cells)
        self.lenient = was_lenient
        return text

    def _write_builtin(self, value: BuiltinFunctionType) -> str:
        owner = value.__self__
        if owner is None or isinstance(owner, ModuleType | type):
            return f"builtin:{value.__module__}.{value.__qualname__}"
        return f"builtin:{value.__name__} of {self.write(owner)}"

    def _write_module(self, value: ModuleType) -> str:
        return self._write_reference("module", value) or f"module:{value.__name__}"

    def _write_method(self, value: MethodType) -> str:
        return f"method({self.write(value.__func__)} of {self.write(value.__self__)})"

    def _write_partial(self, value: "functools.partial[Any]") -> str:
        return self._write_items("partial", (value.func, value.args, value.keywords))

    def _write_descriptor(self, value: Any) -> str:
        names = ("fget", "fset", "fdel", "func", "__func__")
        return self._write_items(type(value).__name__, (getattr(value, name) for name in names if hasattr(value, name)))

    def _write_text(self, value: str) -> str:
        return f"{self._write_kind(value)}:{self.project.strip_root(str.__str__(value))!r}"

    def _write_path(self, value: PurePath) -> str:
        return f"path:{self.project.strip_root(value.as_posix())!r}"

    def _write_enum(self, value: enum.Enum) -> str:
        return f"{self._write_class(type(value))}.{value.name}={self.write(value.value)}"

    def _write_pattern(self, value: "re.Pattern[Any]") -> str:
        return f"pattern:{value.pattern!r}:{value.flags}"

    def _write_dataclass(self, value: Any) -> str:
        names = [field.name for field in dataclasses.fields(value)]
        if type(value).__module__.startswith("runnel."):
            names = [field.name for field in dataclasses.fields(value) if field.compare and field.name != "place"]
        return self._write_items(self._write_class(type(value)), (getattr(value, name, None) for name in names))

    def _write_spark(self, value: Any) -> str:
        name = type(value).__name__
        state = getattr(value, "__dict__", {})
        if name in _SESSIONS:
            return f"spark:{name}"
        if name == "Column":
            return f"column:{value}"
        if "func" in state and "_returnType" in state:
            return self._write_items(
                "udf", (state.get(key) for key in ("func", "_returnType", "evalType", "deterministic"))
            )
        if callable(getattr(type(value), "jsonValue", None)):
            return f"spark:{value.json()}"
        return self._write_unknown(value)

    def _write_runnel(self, value: Any) -> str:
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            return self.write(wrapped)
        return self._write_dataclass(value) if dataclasses.is_dataclass(value) else f"runnel:{type(value).__qualname__}"

    def _write_numpy(self, value: Any) -> str:
        if not hasattr(value, "tobytes"):
            return self._write_object(value)
        if value.dtype.hasobject:
            return self._write_items(f"numpy:{value.shape}", value.tolist())
        import hashlib

        return f"numpy:{value.dtype.str}:{value.shape}:{hashlib.sha256(value.tobytes()).hexdigest()}"

    def _write_pandas(self, value: Any) -> str:
        if type(value).__name__ == "DataFrame":
            dtypes = [str(dtype) for dtype in value.dtypes]
            return self._write_items("frame", (dtypes, value.to_dict(orient="tight")))
        if type(value).__name__ == "Series":
            return self._write_items("series", (str(value.dtype), value.name, value.index.tolist(), value.tolist()))
        return self._write_object(value)

    def _write_object(self, value: object) -> str:
        kind = type(value)
        if (kind.__module__, kind.__qualname__) in _STATELESS_TYPES:
            return f"quiet:{kind.__qualname__}"
        if kind.__module__ == "typing" or kind.__qualname__ == "GenericAlias":
            return f"typing:{value!r}"
        if hasattr(value, "__wrapped__") and callable(value):  # lru_cache, singledispatch and the like
            return self._write_items(self._write_class(kind), (value.__wrapped__,))
        reduce = copyreg.dispatch_table.get(kind)
        reduced: Any = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return f"global:{kind.__module__}.{reduced}"
        constructor, arguments, *rest = reduced
        state = rest[0] if rest else None
        items = [list(iterator) for iterator in rest[1:3] if iterator is not None]
        return self._write_items(self._write_class(kind), (_qualified_name(constructor), arguments, state, *items))

    def _write_unknown(self, value: object) -> str:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if not self.lenient:
            self.unknown.append(name)
        return f"unknown:{name}"


def _qualified_name(constructor: Any) -> str:
    return (
        f"{getattr(constructor, '__module__', '')}."
        f"{getattr(constructor, '__qualname__', type(constructor).__qualname__)}"
    )


_WRITERS: tuple[tuple[Any, Callable[[ValueWriter, Any], str]], ...] = (
    (enum.Enum, ValueWriter._write_enum),
    (str, ValueWriter._write_text),
    ((list, tuple), ValueWriter._write_sequence),
    ((dict, MappingProxyType), ValueWriter._write_mapping),
    ((set, frozenset), ValueWriter._write_set),
    (FunctionType, ValueWriter._write_function),
    (BuiltinFunctionType, ValueWriter._write_builtin),
    (MethodType, ValueWriter._write_method),
    (type, ValueWriter._write_class),
    (ModuleType, ValueWriter._write_module),
    (functools.partial, ValueWriter._write_partial),
    ((property, staticmethod, classmethod, functools.cached_property), ValueWriter._write_descriptor),
    (PurePath, ValueWriter._write_path),
    (re.Pattern, ValueWriter._write_pattern),
)
_PACKAGE_WRITERS: dict[str, Callable[[ValueWriter, Any], str]] = {
    "pyspark": ValueWriter._write_spark,
    "numpy": ValueWriter._write_numpy,
    "pandas": ValueWriter._write_pandas,
    "runnel": ValueWriter._write_runnel,
}

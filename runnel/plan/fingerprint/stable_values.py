"""Values as text: the same in every process, wherever the project's folder is.

Objects of Spark, numpy and pandas are known by the name of their module; none of them is imported. Functions, classes
and modules of the project are handed to the caller, who follows them.
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

from runnel.plan.fingerprint.code.code_unit import Unit
from runnel.plan.fingerprint.project_files import Project

_PLAIN = (bool, int, float, complex, bytes, bytearray, type(None), type(Ellipsis), type(NotImplemented), range, slice)
# Things whose state has no part in what a task computes.
_QUIET = {
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
_DEEPEST = 100
_MOST = 1_000_000


class ValueWriter:
    """Writes one value. `refs` are the pieces that it holds, `unknown` the kinds that it could not look into."""

    def __init__(self, project: Project, unit_of: Callable[[object], Unit | None], *, lenient: bool = False) -> None:
        self.project = project
        self.unit_of = unit_of
        self.lenient = lenient  # an unknown kind counts by its name
        self.refs: list[Unit] = []
        self.unknown: list[str] = []
        self._open: list[int] = []
        self._count = 0

    def write(self, value: object) -> str:
        """Return the text of a value."""
        kind = type(value)
        if kind is str:
            return f"str:{self.project.moved(value)!r}"  # type: ignore[arg-type]
        if kind in _PLAIN:
            return f"{kind.__name__}:{value!r}"
        self._count += 1
        if id(value) in self._open:
            return f"circle:{len(self._open) - self._open.index(id(value))}"
        if len(self._open) > _DEEPEST or self._count > _MOST:
            return self._unknown(value)
        self._open.append(id(value))
        try:
            return self._inside(value)
        except Exception:  # a user's __reduce__, __repr__ or property may do anything
            return self._unknown(value)
        finally:
            self._open.pop()

    def _inside(self, value: object) -> str:
        for kinds, write in _WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
        module = type(value).__module__.partition(".")[0]
        foreign = _FOREIGN.get(module)
        if foreign is not None:
            return foreign(self, value)
        if dataclasses.is_dataclass(value):
            return self._dataclass(value)
        return self._object(value)

    def _items(self, name: str, values: Iterable[object]) -> str:
        return f"{name}[{','.join(self.write(value) for value in values)}]"

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> str:
        return self._items(self._kind(value), value)

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        pairs = (f"{self.write(key)}={self.write(item)}" for key, item in value.items())
        text = f"{self._kind(value)}{{{','.join(pairs)}}}"
        factory = getattr(value, "default_factory", None)
        return text if factory is None else f"{text} or {self.write(factory)}"

    def _set(self, value: set[Any] | frozenset[Any]) -> str:
        found: list[tuple[str, tuple[str, ...], list[Unit]]] = []
        before = self.refs
        for item in value:
            self.refs = []
            text = self.write(item)
            found.append((text, tuple(unit.label for unit in self.refs), self.refs))
        found.sort(key=lambda each: each[:2])
        self.refs = before + [unit for _, _, refs in found for unit in refs]
        return f"{self._kind(value)}<{','.join(text for text, _, _ in found)}>"

    def _kind(self, value: object) -> str:
        kind = type(value)
        return kind.__name__ if kind.__module__ == "builtins" else self._class(kind)

    def _class(self, kind: type) -> str:
        return self._referred("class", kind) or f"class:{kind.__module__}.{kind.__qualname__}"

    def _referred(self, what: str, value: object) -> str | None:
        unit = self.unit_of(value)
        if unit is None:
            return None
        self.refs.append(unit)
        return f"{what}@{unit.annotations}"

    def _function(self, value: FunctionType) -> str:
        return self._referred("function", value) or self._installed(value)

    def _installed(self, value: FunctionType) -> str:
        """Return a function of a package by name, with what it wraps: decorators keep it in their closure."""
        name = f"{value.__globals__.get('__name__')}.{value.__code__.co_qualname}"
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:
                cells.append(None)
        was, self.lenient = self.lenient, True
        text = self._items(f"function:{name}", cells)
        self.lenient = was
        return text

    def _builtin(self, value: BuiltinFunctionType) -> str:
        owner = value.__self__
        if owner is None or isinstance(owner, ModuleType | type):
            return f"builtin:{value.__module__}.{value.__qualname__}"
        return f"builtin:{value.__name__} of {self.write(owner)}"

    def _module(self, value: ModuleType) -> str:
        return self._referred("module", value) or f"module:{value.__name__}"

    def _method(self, value: MethodType) -> str:
        return f"method({self.write(value.__func__)} of {self.write(value.__self__)})"

    def _partial(self, value: "functools.partial[Any]") -> str:
        return self._items("partial", (value.func, value.args, value.keywords))

    def _descriptor(self, value: Any) -> str:
        names = ("fget", "fset", "fdel", "func", "__func__")
        return self._items(type(value).__name__, (getattr(value, name) for name in names if hasattr(value, name)))

    def _text(self, value: str) -> str:
        return f"{self._kind(value)}:{self.project.moved(str.__str__(value))!r}"

    def _path(self, value: PurePath) -> str:
        return f"path:{self.project.moved(value.as_posix())!r}"

    def _enum(self, value: enum.Enum) -> str:
        return f"{self._class(type(value))}.{value.name}={self.write(value.value)}"

    def _pattern(self, value: "re.Pattern[Any]") -> str:
        return f"pattern:{value.pattern!r}:{value.flags}"

    def _dataclass(self, value: Any) -> str:
        names = [each.name for each in dataclasses.fields(value)]
        if type(value).__module__.startswith("runnel."):
            names = [each.name for each in dataclasses.fields(value) if each.compare and each.name != "place"]
        return self._items(self._class(type(value)), (getattr(value, name, None) for name in names))

    def _spark(self, value: Any) -> str:
        name = type(value).__name__
        state = getattr(value, "__dict__", {})
        if name in _SESSIONS:
            return f"spark:{name}"
        if name == "Column":
            return f"column:{value}"
        if "func" in state and "_returnType" in state:
            return self._items("udf", (state.get(key) for key in ("func", "_returnType", "evalType", "deterministic")))
        if callable(getattr(type(value), "jsonValue", None)):
            return f"spark:{value.json()}"
        return self._unknown(value)

    def _runnel(self, value: Any) -> str:
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            return self.write(wrapped)
        return self._dataclass(value) if dataclasses.is_dataclass(value) else f"runnel:{type(value).__qualname__}"

    def _numpy(self, value: Any) -> str:
        if not hasattr(value, "tobytes"):
            return self._object(value)
        if value.dtype.hasobject:
            return self._items(f"numpy:{value.shape}", value.tolist())
        import hashlib

        return f"numpy:{value.dtype.str}:{value.shape}:{hashlib.sha256(value.tobytes()).hexdigest()}"

    def _pandas(self, value: Any) -> str:
        if type(value).__name__ == "DataFrame":
            dtypes = [str(dtype) for dtype in value.dtypes]
            return self._items("frame", (dtypes, value.to_dict(orient="tight")))
        if type(value).__name__ == "Series":
            return self._items("series", (str(value.dtype), value.name, value.index.tolist(), value.tolist()))
        return self._object(value)

    def _object(self, value: object) -> str:
        kind = type(value)
        if (kind.__module__, kind.__qualname__) in _QUIET:
            return f"quiet:{kind.__qualname__}"
        if kind.__module__ == "typing" or kind.__qualname__ == "GenericAlias":
            return f"typing:{value!r}"
        if hasattr(value, "__wrapped__") and callable(value):  # lru_cache, singledispatch and the like
            return self._items(self._class(kind), (value.__wrapped__,))
        reduce = copyreg.dispatch_table.get(kind)
        reduced: Any = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return f"global:{kind.__module__}.{reduced}"
        made, arguments, *rest = reduced
        state = rest[0] if rest else None
        items = [list(each) for each in rest[1:3] if each is not None]
        return self._items(self._class(kind), (_named(made), arguments, state, *items))

    def _unknown(self, value: object) -> str:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if not self.lenient:
            self.unknown.append(name)
        return f"unknown:{name}"


def _named(made: Any) -> str:
    return f"{getattr(made, '__module__', '')}.{getattr(made, '__qualname__', type(made).__qualname__)}"


_WRITERS: tuple[tuple[Any, Callable[[ValueWriter, Any], str]], ...] = (
    (enum.Enum, ValueWriter._enum),
    (str, ValueWriter._text),
    ((list, tuple), ValueWriter._sequence),
    ((dict, MappingProxyType), ValueWriter._mapping),
    ((set, frozenset), ValueWriter._set),
    (FunctionType, ValueWriter._function),
    (BuiltinFunctionType, ValueWriter._builtin),
    (MethodType, ValueWriter._method),
    (type, ValueWriter._class),
    (ModuleType, ValueWriter._module),
    (functools.partial, ValueWriter._partial),
    ((property, staticmethod, classmethod, functools.cached_property), ValueWriter._descriptor),
    (PurePath, ValueWriter._path),
    (re.Pattern, ValueWriter._pattern),
)
_FOREIGN: dict[str, Callable[[ValueWriter, Any], str]] = {
    "pyspark": ValueWriter._spark,
    "numpy": ValueWriter._numpy,
    "pandas": ValueWriter._pandas,
    "runnel": ValueWriter._runnel,
}

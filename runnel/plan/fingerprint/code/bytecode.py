"""Functions without source, by their compiled code: the same in every process of one Python version. Pure."""

from collections.abc import Iterator
from types import CodeType

from runnel.plan.fingerprint.code.code_unit import digest


def bytecode(code: CodeType) -> str:
    """Return a hash of what a function does, without its docstring and line numbers."""
    return digest(
        [
            code.co_name,
            str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
            code.co_code.hex(),
            *map(_constant, code.co_consts),
            repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        ]
    )


def names_in(code: CodeType) -> list[str]:
    """Return every name that a function or one within it may look up."""
    return sorted(set(_names(code)))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return bytecode(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"<{','.join(sorted(map(_constant, value)))}>"
    return f"{type(value).__name__}:{value!r}"

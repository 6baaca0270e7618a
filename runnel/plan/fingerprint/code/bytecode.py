"""Hash functions without source by their compiled code: stable for one Python version. Pure."""

from collections.abc import Iterator
from types import CodeType

from runnel.plan.fingerprint.code.code_unit import hash_texts


def hash_bytecode(code: CodeType) -> str:
    """Hash the code of a function, without its docstring and line numbers."""
    return hash_texts(
        [
            code.co_name,
            str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
            code.co_code.hex(),
            *map(_constant_text, code.co_consts),
            repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        ]
    )


def list_code_names(code: CodeType) -> list[str]:
    """Return every name that a function or its nested functions may look up."""
    return sorted(set(_iter_names(code)))


def _iter_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _iter_names(inner)


def _constant_text(value: object) -> str:
    if isinstance(value, CodeType):
        return hash_bytecode(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_constant_text, value))})"
    if isinstance(value, frozenset):
        return f"<{','.join(sorted(map(_constant_text, value)))}>"
    return f"{type(value).__name__}:{value!r}"

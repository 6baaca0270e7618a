"""List the names in `runnel/` that say nothing where they are read: `python -m tests.vague_names`."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "runnel"
VAGUE = frozenset(
    ["found", "one", "made", "told", "known", "given", "wanted", "gone", "kept", "held", "here", "taken", "shown"]
)


@dataclass(frozen=True)
class Binding:
    """A place where a vague name is bound: a variable, parameter, function, class or import."""

    name: str
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE.parent)}:{self.line}: {self.name}"


def modules() -> list[Path]:
    """Return the files of the package, example projects aside."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts)


def vague_bindings() -> list[Binding]:
    """Return every binding of a vague name."""
    return [
        Binding(name, path, node.lineno)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _bound_names(node)
        if name in VAGUE
    ]


def _bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=alias):
            yield alias or name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


def main() -> None:
    bindings = vague_bindings()
    counts = Counter(binding.name for binding in bindings)
    lines = [str(binding) for binding in bindings]
    lines += [f"{len(bindings)} vague names: {', '.join(f'{name} {count}' for name, count in counts.most_common())}"]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

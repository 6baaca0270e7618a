"""Names and folders that a stranger reads at once: what `docs/architecture.md` promises of the source tree."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

from tests.vague_names import PACKAGE, modules, vague_bindings

MAX_MODULES = 15
MAX_VAGUE = 60
BANNED_MODULES = frozenset(
    [
        "again",
        "alike",
        "answers",
        "applied",
        "applying",
        "arriving",
        "aside",
        "asked",
        "asking",
        "beside",
        "bring",
        "common",
        "course",
        "crew",
        "due",
        "effort",
        "errand",
        "expect",
        "fed",
        "fit",
        "found",
        "given",
        "glance",
        "glancing",
        "gone",
        "handing",
        "handover",
        "helpers",
        "herald",
        "here",
        "hold",
        "holding",
        "keep",
        "keeper",
        "keeping",
        "kept",
        "kinds",
        "known",
        "lanes",
        "lending",
        "made",
        "manager",
        "marks",
        "moving",
        "news",
        "once",
        "outlet",
        "pace",
        "packing",
        "placed",
        "play",
        "pour",
        "pulse",
        "reach",
        "reported",
        "revised",
        "seen",
        "sent",
        "settle",
        "shown",
        "sift",
        "spent",
        "still",
        "sums",
        "surplus",
        "taken",
        "tape",
        "tell",
        "telling",
        "tellings",
        "told",
        "trail",
        "trouble",
        "turns",
        "undelivered",
        "utils",
        "watchman",
        "wish",
        "wishes",
        "words",
        "wound",
    ]
)


def test_no_folder_has_more_than_15_modules() -> None:
    counts = Counter(path.parent for path in modules() if path.name != "__init__.py")
    crowded = {_shown(folder): count for folder, count in counts.items() if count > MAX_MODULES}
    assert not crowded


def test_no_module_is_called_by_a_banned_word() -> None:
    assert not [_shown(path) for path in modules() if path.stem in BANNED_MODULES]
    assert not [_shown(path) for path in modules() if path.parent.name in BANNED_MODULES]


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{_shown(path)}:{node.lineno}")
    assert not {name: at for name, at in places.items() if len(at) > 1}


def test_every_package_says_what_it_is_for_and_holds_nothing_else() -> None:
    mute, busy = [], []
    for path in modules():
        if path.name == "__init__.py":
            body = ast.parse(path.read_text()).body
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            if len(docstring.splitlines()) < 2 and path.parent != PACKAGE:
                mute.append(_shown(path))
            if len(body) > 1 and path.parent not in (PACKAGE, PACKAGE / "testing"):  # these two are the public names
                busy.append(_shown(path))
    assert not mute
    assert not busy
    assert not [_shown(folder) for folder in {path.parent for path in modules()} if not _is_package(folder)]


def test_vague_names_are_rare() -> None:
    bindings = vague_bindings()
    assert len(bindings) < MAX_VAGUE, "\n".join(map(str, bindings))


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists() or folder.name == "versions"  # Alembic reads files there, not modules


def _shown(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))

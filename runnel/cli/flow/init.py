"""`runnel init`: copy one of the example projects that come with Runnel."""

from pathlib import Path

import click

from runnel.cli.output import command, print_json
from runnel.errors import Mistake

TEMPLATES = Path(__file__).parents[1] / "templates"
# template: (what it is, a question to its tables)
_KINDS = {
    "shop": ("tasks in Python and SQL over two CSV sources", "select * from ads.top_sellers order by place"),
    "sql": ("the same, all tasks in SQL", "select * from dws.seller_day order by name, day"),
    "empty": ("nothing but a place to begin", ""),
}
_IGNORED = ".runnel/\n__pycache__/\n.pytest_cache/\n"
_ANOTHER = "choose another folder: runnel init DIR"


@command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--template",
    type=click.Choice(list(_KINDS)),
    default="shop",
    help="; ".join(f"{name}: {what}" for name, (what, _) in _KINDS.items()) + ".",
)
@click.option("--name", default=None, help="The project's name; by default the folder's.")
def init(folder: Path, template: str, name: str | None, as_json: bool) -> None:
    """Make a project that runs at once."""
    folder = folder.absolute()
    if (folder / "runnel.toml").exists():
        raise Mistake("INIT_EXISTS", f"{folder} is a project already", fix=_ANOTHER)
    if folder.exists() and not folder.is_dir():
        raise Mistake("INIT_NOT_A_FOLDER", f"{folder} is a file", fix=_ANOTHER)
    files = _files(template, (name or folder.name).replace('"', "'"))
    try:
        _write(folder, files)
    except OSError as error:
        what = f"can't make a project in {folder}: {error.strerror}"
        raise Mistake("INIT_FOLDER", what, fix=_ANOTHER) from error
    if as_json:
        print_json({"project": str(folder), "template": template, "files": sorted(files)})
        return
    click.echo(f"made a project in {folder}\n\nnext:\n{_next(folder, template)}")


def _files(template: str, name: str) -> dict[str, str]:
    """Return the files of a template, by their paths in the project."""
    root = TEMPLATES / template
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    quoted = name.replace("\\", "\\\\")
    found["runnel.toml"] = found["runnel.toml"].replace('name = "shop"', f'name = "{quoted}"')
    if "README.md" in found:
        found["README.md"] = found["README.md"].replace("# shop\n", f"# {name}\n", 1)
    return {**found, ".gitignore": _IGNORED}


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write files; what is there already stays as it is."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text(text, encoding="utf-8")


def _next(folder: Path, template: str) -> str:
    here = Path.cwd()
    steps = [] if folder == here else [(f"cd {folder.relative_to(here) if here in folder.parents else folder}", "")]
    question = _KINDS[template][1]
    if question:
        steps += [("runnel plan", "what would be computed, and why"), ("runnel run", "compute, check, publish")]
        steps += [(f'runnel query "{question}"', ""), ("pytest", "the tasks on a handful of rows")]
    else:
        steps += [("flows/flow.py", "declare sources and tasks here"), ("runnel validate", "see what is wrong")]
        steps += [("runnel load ods.orders FILE", "or add data by hand")]
    return "\n".join(f"  {word.ljust(30)}{what}".rstrip() for word, what in steps)

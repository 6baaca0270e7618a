"""`runnel init`: copy one of the example projects that come with Runnel."""

from pathlib import Path

import click

from runnel.cli.output import command, print_json, print_text
from runnel.errors import Mistake

TEMPLATES = Path(__file__).parents[1] / "templates"
# template: (description, an example query of its tables)
_TEMPLATE_KINDS = {
    "shop": ("tasks in Python and SQL over two CSV sources", "select * from ads.top_sellers order by place"),
    "sql": ("the same, all tasks in SQL", "select * from dws.seller_day order by name, day"),
    "empty": ("an empty project", ""),
}
_GITIGNORE = ".runnel/\n__pycache__/\n.pytest_cache/\n"
_OTHER_FOLDER_FIX = "choose another folder: runnel init DIR"


@command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--template",
    type=click.Choice(list(_TEMPLATE_KINDS)),
    default="shop",
    help="; ".join(f"{name}: {what}" for name, (what, _) in _TEMPLATE_KINDS.items()) + ".",
)
@click.option("--name", default=None, help="The project's name; by default the folder's.")
def init(folder: Path, template: str, name: str | None, as_json: bool) -> None:
    """Create a project that is ready to run."""
    folder = folder.absolute()
    if (folder / "runnel.toml").exists():
        raise Mistake("INIT_EXISTS", f"{folder} is a project already", fix=_OTHER_FOLDER_FIX)
    if folder.exists() and not folder.is_dir():
        raise Mistake("INIT_NOT_A_FOLDER", f"{folder} is a file", fix=_OTHER_FOLDER_FIX)
    files = _read_template(template, (name or folder.name).replace('"', "'"))
    try:
        _write_files(folder, files)
    except OSError as error:
        what = f"can't make a project in {folder}: {error.strerror}"
        raise Mistake("INIT_FOLDER", what, fix=_OTHER_FOLDER_FIX) from error
    if as_json:
        print_json({"project": str(folder), "template": template, "files": sorted(files)})
        return
    print_text(f"made a project in {folder}\n\nnext:\n{_describe_next_steps(folder, template)}")


def _read_template(template: str, name: str) -> dict[str, str]:
    """Return the files of a template, by their paths in the project."""
    root = TEMPLATES / template
    files = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    escaped_name = name.replace("\\", "\\\\")
    files["runnel.toml"] = files["runnel.toml"].replace('name = "shop"', f'name = "{escaped_name}"')
    if "README.md" in files:
        files["README.md"] = files["README.md"].replace("# shop\n", f"# {name}\n", 1)
    return {**files, ".gitignore": _GITIGNORE}


def _write_files(folder: Path, files: dict[str, str]) -> None:
    """Write files; existing files stay as they are."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text(text, encoding="utf-8")


def _describe_next_steps(folder: Path, template: str) -> str:
    current_folder = Path.cwd()
    steps = (
        []
        if folder == current_folder
        else [(f"cd {folder.relative_to(current_folder) if current_folder in folder.parents else folder}", "")]
    )
    question = _TEMPLATE_KINDS[template][1]
    if question:
        steps += [("runnel plan", "what would be computed, and why"), ("runnel run", "compute, check, publish")]
        steps += [(f'runnel query "{question}"', ""), ("pytest", "the tasks on a handful of rows")]
    else:
        steps += [("flows/flow.py", "declare sources and tasks here"), ("runnel validate", "see what is wrong")]
        steps += [("runnel load ods.orders FILE", "or add data by hand")]
    steps += [("runnel up", "run schedules and streams until Ctrl-C, with a REST API")]
    return "\n".join(f"  {command_text.ljust(30)}{what}".rstrip() for command_text, what in steps)

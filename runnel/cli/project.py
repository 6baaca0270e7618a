"""`runnel init`."""

from pathlib import Path

import click

from runnel.cli.base import command, print_json
from runnel.errors import Mistake

_TOML = """\
[project]
name = "{name}"

# The values below are the defaults; uncomment what you change.
# [lake]
# catalog = "sqlite:///.runnel/catalog.db"     # postgresql://user@host/db for a team
# warehouse = ".runnel/warehouse"              # s3://bucket/prefix for a team
# [spark]
# master = "local[*]"
# [retention]
# commits = "30 days"
"""
_ORDERS = """\
order_id,seller_id,day,amount
1,10,2026-01-01,20.00
2,11,2026-01-01,35.50
3,10,2026-01-02,12.25
"""
_LATE = """\
order_id,seller_id,day,amount
4,11,2026-01-02,30.00
5,12,2026-01-02,10.00
"""


@command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--name", default=None, help="The project's name; by default the folder's.")
def init(folder: Path, name: str | None, as_json: bool) -> None:
    """Make a project that runs at once."""
    folder = folder.absolute()
    if (folder / "runnel.toml").exists():
        raise Mistake("INIT_EXISTS", f"{folder} is a project already", fix="choose another folder: runnel init DIR")
    if folder.exists() and not folder.is_dir():
        raise Mistake("INIT_NOT_A_FOLDER", f"{folder} is a file", fix="choose another folder: runnel init DIR")
    made = {
        "runnel.toml": _TOML.format(name=(name or folder.name).replace('"', "'")),
        "data/orders.csv": _ORDERS,
        "data/late.csv": _LATE,
        ".gitignore": ".runnel/\n",
    }
    try:
        _write(folder, made)
    except OSError as error:
        what = f"can't make a project in {folder}: {error.strerror}"
        raise Mistake("INIT_FOLDER", what, fix="choose another folder: runnel init DIR") from error
    if as_json:
        print_json({"project": str(folder), "files": sorted(made)})
        return
    here = "" if folder == Path.cwd() else f"  cd {folder}\n"
    click.echo(f"made a project in {folder}\n\nnext:\n{here}  runnel load ods.orders data/orders.csv")
    click.echo('  runnel query "select day, sum(amount) from ods.orders group by day order by day"\n  runnel log')


def _write(folder: Path, made: dict[str, str]) -> None:
    for path, text in made.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text(text, encoding="utf-8")

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
        ".gitignore": ".runnel/\n",
    }
    for path, text in made.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"project": str(folder), "files": sorted(made)})
        return
    here = "" if folder == Path.cwd() else f"  cd {folder}\n"
    click.echo(f"made a project in {folder}\n\nnext:\n{here}  runnel load ods.orders data/orders.csv")
    click.echo('  runnel query "select day, sum(amount) from ods.orders group by day order by day"\n  runnel log')

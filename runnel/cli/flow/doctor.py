"""`runnel doctor`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, print_json, settings
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.spark.doctor import Fact


@command()
def doctor(as_json: bool) -> None:
    """Say what is installed, reachable, wrong; starts no Spark."""
    from runnel.spark.doctor import facts

    found = [*facts(), *_project()]
    if as_json:
        print_json(
            {"facts": [{"name": one.name, "state": one.state, "what": one.what, "fix": one.fix} for one in found]}
        )
    else:
        width = max(len(one.name) for one in found)
        for one in found:
            click.echo(f"{one.state:<4}  {one.name:<{width}}  {one.what}")
            if one.fix and one.state != "ok":
                click.echo(f"      {'':<{width}}  fix: {one.fix}")
    if any(one.state == "fail" for one in found):
        sys.exit(1)


def _project() -> "list[Fact]":
    """Look at the project and its lake, if the command is called in one."""
    from runnel.lake.iceberg.file_io import free_bytes
    from runnel.lake.store import Store
    from runnel.spark.doctor import Fact as fact

    try:
        chosen = settings()
    except RunnelError as error:
        if error.code == "PROJECT_NOT_FOUND":
            return [fact("project", "warn", "not in a project", "cd into one, or `runnel init`")]
        return [fact("project", "fail", error.what, error.fix)]
    seen = [fact("project", "ok", f"{chosen.name} in {chosen.root}")]
    try:
        store = Store.open(chosen.catalog, chosen.warehouse)
        shown = store.db.url.render_as_string(hide_password=True)
        seen.append(fact("catalog", "ok", f"{shown}, {count(len(store.state('main')), 'table')} on main"))
        free = free_bytes(chosen.warehouse)
        low = free is not None and free < 2**30
        text = chosen.warehouse + (f", {free / 2**30:.1f} GiB free" if free is not None else "")
        seen.append(fact("warehouse", "warn" if low else "ok", text, "free some space" if low else None))
        store.close()
    except RunnelError as error:
        seen.append(fact("catalog", "fail", error.what, error.fix))
    return seen

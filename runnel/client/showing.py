"""A lake as HTML, for notebooks. Reads the tables' own summaries, no data."""

from typing import TYPE_CHECKING

from runnel import notebook

if TYPE_CHECKING:
    from runnel.client.lake import Lake

_MOST_TABLES = 50


def lake_html(lake: "Lake") -> str:
    """Return a project's name and place, its branches, and the tables of main with their rows."""
    from runnel.lake.branches import branches
    from runnel.lake.sizes import size_of
    from runnel.lake.tables import load

    names = [branch.name for branch in lake.store.db.read(branches)]
    state = lake.store.state("main")
    rows = []
    for name, version in list(state.items())[:_MOST_TABLES]:
        size = size_of(load(lake.store, version.location))
        rows.append([name, "?" if size.rows is None else f"{size.rows:,}"])
    settings = lake.settings
    told = f"<div><b>{notebook.text(settings.name)}</b> at <code>{notebook.text(settings.root)}</code></div>"
    told += f"<div>branches: {notebook.text(', '.join(names))}</div>"
    if len(state) > _MOST_TABLES:
        told += f"<div>the first {_MOST_TABLES} of {len(state):,} tables</div>"
    return told + (notebook.table(["table", "rows"], rows, (1,)) if rows else "<div>no tables yet</div>")

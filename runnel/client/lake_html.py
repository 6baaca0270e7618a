"""A lake as HTML, for notebooks. Reads the tables' own summaries, no data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel import notebook_html

if TYPE_CHECKING:
    from runnel.client.lake import Lake

MOST_TABLES = 50


def lake_html(lake: "Lake") -> str:
    """Return a project's name and place, its branches, and the tables of main with their rows."""
    from runnel.client.json_views.table import size_json

    names, state = [branch.name for branch in lake.branches()], lake.store.state("main")
    shown = list(state.items())[:MOST_TABLES]
    sizes = [size_json(lake.store, name, version.location) for name, version in shown]
    return html(lake.settings.name, str(lake.settings.root), names, sizes, is_more=len(state) > MOST_TABLES)


def html(
    project: str, place: str, branches: Sequence[str], sizes: Sequence[Mapping[str, Any]], *, is_more: bool
) -> str:
    """Return a lake, with some of its tables and their sizes."""
    rows = [[one["table"], "?" if one["rows"] is None else f"{one['rows']:,}"] for one in sizes]
    told = f"<div><b>{notebook_html.text(project)}</b> at <code>{notebook_html.text(place)}</code></div>"
    told += f"<div>branches: {notebook_html.text(', '.join(branches))}</div>"
    if is_more:
        told += f"<div>the first {len(sizes):,} tables</div>"
    return told + (notebook_html.table(["table", "rows"], rows, (1,)) if rows else "<div>no tables yet</div>")

"""Render a lake as HTML, for notebooks. Reads the tables' summaries, no data."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel import notebook_html

if TYPE_CHECKING:
    from runnel.client.lake import Lake

MOST_TABLES = 50


def lake_html(lake: "Lake") -> str:
    """Return a project's name and folder, its branches, and the tables of main with their row counts."""
    from runnel.client.json_views.table import size_json

    names, state = [branch.name for branch in lake.branches()], lake.store.state("main")
    shown_tables = list(state.items())[:MOST_TABLES]
    sizes = [size_json(lake.store, name, version.location) for name, version in shown_tables]
    return render_lake_html(lake.settings.name, str(lake.settings.root), names, sizes, is_more=len(state) > MOST_TABLES)


def render_lake_html(
    project: str, location: str, branches: Sequence[str], sizes: Sequence[Mapping[str, Any]], *, is_more: bool
) -> str:
    """Return the HTML of a lake, with some of its tables and their sizes."""
    rows = [[size["table"], "?" if size["rows"] is None else f"{size['rows']:,}"] for size in sizes]
    markup = (
        f"<div><b>{notebook_html.render_text(project)}</b> at <code>{notebook_html.render_text(location)}</code></div>"
    )
    markup += f"<div>branches: {notebook_html.render_text(', '.join(branches))}</div>"
    if is_more:
        markup += f"<div>the first {len(sizes):,} tables</div>"
    return markup + (notebook_html.render_table(["table", "rows"], rows, (1,)) if rows else "<div>no tables yet</div>")

"""The history as a picture."""

from runnel.lake.history.log_graph import MAX_COLUMNS, draw_graph
from runnel.lake.history.tags import create_tag
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from tests.lake.table_changes import branch


def commit(store: Store, message: str, on: str = "main", merged: str | None = None) -> None:
    taken = store.commit(merged).id if merged else None
    publish(store.db, CommitDraft(on, message, store.author, (), merged=taken))


def picture(store: Store, ref: str | None = None, limit: int | None = None) -> str:
    """Return the picture without ids, which are drawn by lot."""
    lines = []
    for line in draw_graph(store, ref, limit=limit):
        names = f" ({', '.join(line.names)})" if line.names else ""
        lines.append(line.drawing + (f"{names} {line.commit.message}" if line.commit else ""))
        assert not line.commit or line.commit.id[:8] in str(line)
    return "\n".join(lines) + "\n"


def test_a_branch_that_is_merged(both: Store) -> None:
    commit(both, "load")
    branch(both, "dev")
    commit(both, "fix")
    commit(both, "more", "dev")
    commit(both, "merge dev", merged="dev")
    create_tag(both, "v1")
    commit(both, "on dev", "dev")
    assert picture(both) == PLAIN
    assert picture(both, "v1", limit=2) == "* (main, tag v1) merge dev\n|\\\n| * more\n"


PLAIN = r"""* (dev) on dev
| * (main, tag v1) merge dev
|/|
* | more
| * fix
|/
* load
* the lake is created
"""


def test_branches_side_by_side(store: Store) -> None:
    for name in ("a", "b", "c"):
        branch(store, name)
    for name in ("a", "b", "c", "main"):
        commit(store, f"on {name}", name)
    commit(store, "merge c", "a", merged="c")
    commit(store, "merge b", "a", merged="b")
    commit(store, "end", "c")
    assert picture(store) == SIDE_BY_SIDE


SIDE_BY_SIDE = r"""* (c) end
| * (a) merge b
| |\
| * | merge c
|/| |
| | | * (main) on main
* | | | on c
|_|_|/
| | * (b) on b
|_|/
| * on a
|/
* the lake is created
"""


def test_a_picture_of_many_branches_stays_narrow(store: Store) -> None:
    for number in range(MAX_COLUMNS + 4):
        branch(store, f"b{number}")
        commit(store, f"on {number}", f"b{number}")
    drawn = [line.drawing for line in draw_graph(store)]
    assert max(map(len, drawn)) <= 2 * MAX_COLUMNS + 1
    assert drawn == [line.drawing for line in draw_graph(store)]
    shown = [line.commit.message for line in draw_graph(store) if line.commit]
    assert shown[:2] == [f"on {MAX_COLUMNS + 3}", f"on {MAX_COLUMNS + 2}"] and len(shown) == MAX_COLUMNS + 5

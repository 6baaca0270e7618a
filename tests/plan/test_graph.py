"""The order of tables, and what lies above and below one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.names import TableName
from runnel.plan.graph import Graph
from tests.plan.factories import files, flow, name, task

DIAMOND = flow(
    task("ads.d", "dws.b", "dws.c"), task("dws.c", "ods.a"), task("dws.b", "ods.a"), files("ods.a"), files("ods.z")
)

AROUND = {
    "above the end": ("upstream_of", "ads.d", None, {"dws.b", "dws.c", "ods.a"}),
    "one step above": ("upstream_of", "ads.d", 1, {"dws.b", "dws.c"}),
    "no step": ("upstream_of", "ads.d", 0, set()),
    "above a source": ("upstream_of", "ods.a", None, set()),
    "below a source": ("downstream_of", "ods.a", None, {"dws.b", "dws.c", "ads.d"}),
    "one step below": ("downstream_of", "ods.a", 1, {"dws.b", "dws.c"}),
    "below the end": ("downstream_of", "ads.d", None, set()),
}


def test_order_is_topological_and_by_name():
    assert [str(table) for table in Graph(DIAMOND).order] == ["ods.a", "ods.z", "dws.b", "dws.c", "ads.d"]
    assert [len(level) for level in Graph(DIAMOND).levels] == [2, 2, 1]


@pytest.mark.parametrize(("way", "start", "depth", "expected"), AROUND.values(), ids=AROUND)
def test_around(way, start, depth, expected):
    found = getattr(Graph(DIAMOND), way)(name(start), depth)
    assert {str(table) for table in found} == expected


def test_around_several():
    assert {str(table) for table in Graph(DIAMOND).upstream_of([name("dws.b"), name("dws.c")])} == {"ods.a"}


@given(st.lists(st.sets(st.integers(0, 30), max_size=4), min_size=1, max_size=30))
def test_order_of_any_graph(edges):
    """Every table stands after all that it reads, and what is above it is what has it below."""
    made = [
        task(f"l.t{at}", *(f"l.t{above}" for above in sorted(reads) if above < at)) for at, reads in enumerate(edges)
    ]
    graph = Graph(flow(*reversed(made)))
    place = {table: at for at, table in enumerate(graph.order)}
    assert len(place) == len(made)
    assert all(place[above] < place[each.table] for each in made for above in each.input_tables)
    assert all((a in graph.upstream_of(b)) == (b in graph.downstream_of(a)) for a in place for b in place)


def test_a_long_chain():
    made = [task(f"l.t{at}", *([f"l.t{at - 1}"] if at else [])) for at in range(2000)]
    graph = Graph(flow(*reversed(made)))
    assert graph.order == tuple(TableName("l", f"t{at}") for at in range(2000))
    assert len(graph.upstream_of(graph.order[-1])) == 1999

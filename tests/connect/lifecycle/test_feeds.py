"""The life of what is asked for more: topics of Kafka, APIs, functions, and of what is pushed."""

import io
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fastavro
import pytest

from runnel.connect.feed import failpoints
from runnel.lake.catalog.database import Database
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, write_events
from tests.connect.lifecycle.source_lifecycle import STEPS, Kind, Life, Row
from tests.run.project import Project
from tests.servers.http_server import Server as Api
from tests.servers.kafka import Server as Kafka

SCHEMA = "id long, name string"
FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
AVRO = {"type": "record", "name": "Order", "fields": FIELDS}
FORMS = {"json": f'schema="{SCHEMA}"', "avro": f"avro={AVRO}", "raw": 'format="raw"'}
API = 'schema="id long, name string, at long"'
PAGES = 'records="items", paging="cursor", cursor="meta.next_cursor"'
WAYS = {
    "all": f'"{{url}}/all", {API}',
    "new": f'"{{url}}/cursor", {API}, since="at", key="id", {PAGES}',
}
FUNCTION = """
import json
from pathlib import Path

@rn.source("{table}", schema="{schema}", key="id", on_bad="quarantine")
def {name}(state):
    lines = Path("{path}").read_text().splitlines()
    seen = (state or {{"seen": 0}})["seen"]
    return [json.loads(line) for line in lines[seen:]], {{"seen": len(lines)}}
"""


class InTopic(Kind):
    """A topic: a change is a later message, and both stay. In raw any bytes are a row, and so is none."""

    def __init__(self, form: str, server: Kafka) -> None:
        super().__init__(f"kafka_{form}")
        self.form, self.server = form, server
        self.topic = server.topic(f"life-{form}-{uuid.uuid4().hex[:8]}")
        self.there: list[Row] = []
        if form == "raw":
            self.columns = "value"

    def declare(self) -> str:
        kafka = f'rn.kafka("{self.topic}", servers="{self.server.servers}", {FORMS[self.form]})'
        return f'rn.source("{self.table}", {kafka}, on_bad="quarantine")'

    def put(self, number: int, name: str) -> None:
        raw = self.made(number, name)
        self.there.append((raw,) if self.form == "raw" else (number, name))
        self.server.put(self.topic, raw)

    def made(self, number: int, name: str) -> bytes:
        if self.form != "avro":
            return json.dumps({"id": number, "name": name}).encode()
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"id": number, "name": name})
        return out.getvalue()

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.server.put(self.topic, b"\xff", None)
        if self.form == "raw":
            self.there += [(b"\xff",), (None,)]
            return 0
        return 2

    def rows(self) -> list[Row]:
        return self.there


class FromApi(Kind):
    """An API: asked for all that there is, or for what is new or changed, page by page."""

    def __init__(self, way: str, server: Api) -> None:
        super().__init__(f"http_{way}")
        self.way, self.server = way, server
        self.clock = 1000

    def declare(self) -> str:
        words = WAYS[self.way].format(url=self.server.url(""))
        return f'rn.source("{self.table}", rn.http({words}), on_bad="quarantine")'

    def put(self, number: int | str, name: str) -> None:
        self.clock += 1
        others = [record for record in self.server.records if record["id"] != number]
        self.server.records = [*others, {"id": number, "name": name, "at": self.clock}]

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.put("x", name)
        return 1

    def rows(self) -> list[Row]:
        return [(record["id"], record["name"]) for record in self.server.records if record["id"] != "x"]


class FromFunction(Kind):
    """A function with a state and a key."""

    def __init__(self, root: Path) -> None:
        super().__init__("function")
        self.path = root / "orders.jsonl"
        self.there: dict[int, str] = {}

    def declare(self) -> str:
        return FUNCTION.format(table=self.table, schema=SCHEMA, name=self.name, path=self.path)

    def put(self, number: int, name: str) -> None:
        self.there[number] = name
        self.write({"id": number, "name": name})

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.write({"id": "x", "name": name})
        return 1

    def rows(self) -> list[Row]:
        return list(self.there.items())

    def write(self, row: dict[str, Any]) -> None:
        with self.path.open("a") as out:
            out.write(json.dumps(row) + "\n")


class Pushed(Kind):
    """Events in the inbox: a change is a later one, and both stay."""

    def __init__(self, root: Path) -> None:
        super().__init__("push")
        self.db = Database(f"sqlite:///{root}/.runnel/catalog.db")
        self.there: list[Row] = []

    def declare(self) -> str:
        return f'rn.source("{self.table}", rn.http(schema="{SCHEMA}"), on_bad="quarantine")'

    def put(self, number: int, name: str) -> None:
        self.there.append((number, name))
        self.push({"id": number, "name": name})

    def spoil(self, number: int, name: str) -> int:
        self.put(number, name)
        self.push({"id": "x", "name": name})
        return 1

    def rows(self) -> list[Row]:
        return self.there

    def push(self, event: dict[str, Any]) -> None:
        assert write_events(self.db, [PushRequest(self.table, [json.dumps(event)])]) == [PushReceipt(1, 0)]


KINDS = (*(f"kafka_{form}" for form in FORMS), *(f"http_{way}" for way in WAYS), "function", "push")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Life]:
    root = tmp_path_factory.mktemp("life")
    with ExitStack() as until:
        apis = [FromApi(way, until.enter_context(Api())) for way in WAYS]
        circles: list[Sequence[Kind]] = [[InTopic(form, kafka) for form in FORMS], apis]
        project = Project(root)
        project.open().store.close()
        circles.append([FromFunction(root), Pushed(root)])
        yield Life(project, circles, dict.fromkeys(failpoints.ALL, len(circles))).live()


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_life(life: Life, kind: str, step: str) -> None:
    life.check(kind, step)

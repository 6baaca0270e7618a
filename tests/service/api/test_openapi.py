"""Whatever the OpenAPI document allows, and what it does not: no server error, and every answer as described."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.specs.openapi import checks

from runnel.lake.control import declarations
from runnel.lake.control.declarations import ProjectDeclarations, SourceDeclaration
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.names import TableName
from tests.service.api.api_server import Api, serving, shop, working

_EXAMPLES = 4  # random ones for each operation, after those that cover its bounds
_EXCLUDED = [
    checks.positive_data_acceptance,  # no schema says which names exist, or what is SQL
]


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: object) -> bytes:
    """Send a text as it is; anything else as what is no JSON, for it is no text."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else f"<{value!r}>".encode()


@schemathesis.serializer("application/x-tar")
def archive(ctx: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send whatever is made up as it is: mostly no archive at all."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with shop(tmp_path_factory.mktemp("tried")) as lake, serving(lake) as api, working(api):
        pushed = {"ods.events": SourceDeclaration("ods.events", "push", "ods.events", ("id",))}
        declarations.write_declarations(lake.store.db, ProjectDeclarations(sources=pushed))
        yield api
        assert InboxReader(lake.store.db).read_level(TableName("ods", "events")).last > 0  # some were taken


@pytest.fixture(scope="module")
def described(tried: Api) -> schemathesis.BaseSchema:
    """Return the document as it is served, and how to ask what it describes."""
    config = schemathesis.Config.from_dict({"generation": {"max-examples": _EXAMPLES, "deterministic": True}})
    headers = {"Authorization": f"Bearer {tried.secret}"}
    return schemathesis.openapi.from_url(f"{tried.url}/openapi.json", headers=headers, config=config)


schema = schemathesis.pytest.from_fixture("described").exclude(path="/api/v1/events")  # it never ends


@schema.parametrize()
@settings(deadline=None)
def test_every_operation(case: schemathesis.Case, tried: Api) -> None:
    headers = {"Authorization": f"Bearer {tried.secret}", "Accept": "application/json"}  # no stream that goes on
    case.call_and_validate(session=tried.session, headers=headers, excluded_checks=_EXCLUDED, timeout=30)

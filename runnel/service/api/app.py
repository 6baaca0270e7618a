"""The app: all routes, behind the token, with one way to tell errors."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from runnel import __version__
from runnel.client.lake import Lake
from runnel.service.api import etags, problem_json
from runnel.service.api.change_poller import Pulse
from runnel.service.api.metrics import metrics
from runnel.service.api.middleware.authentication import OPEN, Guard
from runnel.service.api.middleware.idempotency import Keys
from runnel.service.api.middleware.tracing import Traces
from runnel.service.api.parameters import PREFIX
from runnel.service.api.routes.lake import (
    branches,
    checks,
    commits,
    files,
    merge,
    quarantine,
    query,
    sources,
    streams,
    tables,
)
from runnel.service.api.routes.operations import (
    alarms,
    backfills,
    health,
    live,
    plan,
    run_events,
    runs,
    schedules,
    tokens,
    workers,
)
from runnel.telemetry import tracing

_NOUNS = (
    sources,  # the first one is found at once, and asked the most often
    tables,
    commits,
    branches,
    merge,
    query,
    runs,
    run_events,
    plan,
    schedules,
    backfills,
    streams,
    quarantine,
    checks,
    alarms,
    files,
    tokens,
    workers,
    live,
)
_ABOUT = """
The nouns of the command line over HTTP. Every request but those for `/health` and `/ready` needs a token:
`Authorization: Bearer TOKEN`. Errors are `application/problem+json` with a stable `code`. Lists have `items` and
`next`, the cursor of the next page. A POST with an `Idempotency-Key` is done once, however often it is sent.
"""


def make_app(lake: Lake) -> FastAPI:
    """Return the app over a lake. It needs no Spark, and imports no code of users.

    Who listens to events goes on listening until `app.state.ending` is set.
    """
    app = FastAPI(
        title="Runnel",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.lake = lake
    app.state.ending = threading.Event()
    app.state.registry = metrics.registry_of(lake)
    problem_json.handle(app)
    etags.handle(app)
    for noun in _NOUNS:
        app.include_router(noun.router, prefix=PREFIX)
    for root in (health, metrics):
        app.include_router(root.router)
    app.add_middleware(Keys, db=lake.store.db)
    app.add_middleware(Guard, db=lake.store.db)  # what it refuses reaches nothing
    app.add_middleware(problem_json.Defects)
    app.add_middleware(metrics.Meters, registry=app.state.registry)
    if tracing.configure(lake.settings.telemetry, lake.settings.name):
        app.add_middleware(Traces)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.pulse = Pulse(app.state.lake.store.db, app.state.ending)
    app.state.inboxes = sources.Inboxes(app.state.lake.store.db)
    yield
    app.state.ending.set()
    await to_thread.run_sync(app.state.inboxes.writer.close)


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with what all routes share."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        parts = made["components"]
        parts["schemas"] |= _problem_schemas()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
        for path in OPEN:
            made["paths"][path]["get"]["security"] = []
        app.openapi_schema = made
    return app.openapi_schema


def _problem_schemas() -> dict[str, Any]:
    found = problem_json.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**found.pop("$defs"), "Problem": found}

"""Build the FastAPI app: all routes, token authentication, and errors as problem JSON."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi

from runnel import __version__
from runnel.client.lake import Lake
from runnel.service.api import etags, problem_json
from runnel.service.api.change_poller import ChangePoller
from runnel.service.api.metrics import metrics
from runnel.service.api.middleware.authentication import PUBLIC_PATHS, AuthenticationMiddleware
from runnel.service.api.middleware.idempotency import IdempotencyMiddleware
from runnel.service.api.middleware.security_headers import SecurityHeadersMiddleware
from runnel.service.api.middleware.tracing import TracingMiddleware
from runnel.service.api.parameters import API_PREFIX
from runnel.service.api.routes.lake import (
    branches,
    checks,
    commits,
    files,
    lineage,
    merge,
    quarantine,
    query,
    rewind,
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
    sinks,
    tokens,
    workers,
)
from runnel.service.api.unknown_parameters import refuse_unknown_parameters
from runnel.telemetry import tracing

_RESOURCES = (
    sources,  # first, because routes are matched in order and events are pushed most often
    rewind,
    tables,
    lineage,
    commits,
    branches,
    merge,
    query,
    runs,
    run_events,
    plan,
    schedules,
    backfills,
    sinks,
    streams,
    quarantine,
    checks,
    alarms,
    files,
    tokens,
    workers,
    live,
)
_DESCRIPTION = """
The operations of the command line over HTTP. Every request except `/health` and `/ready` needs a token:
`Authorization: Bearer TOKEN`. Errors are `application/problem+json` with a stable `code`. Lists have `items` and
`next`, the cursor of the next page. A POST with an `Idempotency-Key` is executed once, however often it is sent.
"""


def make_app(lake: Lake) -> FastAPI:
    """Return the app over a lake. It needs no Spark and imports no user code.

    Event streams stay open until `app.state.ending` is set.
    """
    app = FastAPI(
        title="Runnel",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.lake = lake
    app.state.ending = threading.Event()
    app.state.registry = metrics.build_registry(lake)
    problem_json.add_handlers(app)
    etags.add_handler(app)
    for resource in _RESOURCES:
        app.include_router(resource.router, prefix=API_PREFIX, dependencies=[Depends(refuse_unknown_parameters)])
    for module in (health, metrics):
        app.include_router(module.router)
    app.add_middleware(IdempotencyMiddleware, db=lake.store.db)
    app.add_middleware(AuthenticationMiddleware, db=lake.store.db)  # a request that it refuses reaches no route
    app.add_middleware(problem_json.UnexpectedErrorMiddleware)
    app.add_middleware(metrics.RequestMetricsMiddleware, registry=app.state.registry)
    if tracing.configure(lake.settings.telemetry, lake.settings.name):
        app.add_middleware(TracingMiddleware)
    app.add_middleware(SecurityHeadersMiddleware)
    app.openapi = lambda: _build_openapi(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.pulse = ChangePoller(app.state.lake.store.db, app.state.ending)
    app.state.inboxes = sources.PushInboxes(app.state.lake.store.db)
    yield
    app.state.ending.set()
    await to_thread.run_sync(app.state.inboxes.writer.close)


def _build_openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the error schemas and the security that all routes share."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document["components"]
        components["schemas"] |= _problem_schemas()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path in PUBLIC_PATHS:
            document["paths"][path]["get"]["security"] = []
        app.openapi_schema = document
    return app.openapi_schema


def _problem_schemas() -> dict[str, Any]:
    problem_schema = problem_json.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**problem_schema.pop("$defs"), "Problem": problem_schema}

"""Routes for liveness and readiness: public, and without any other information."""

import sqlalchemy as sa
from fastapi import APIRouter, Request
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from runnel.errors import Unreachable
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The state of the service."""

    status: str


@router.get("/health", response_model=HealthView, summary="Check that the process is running")
async def show_health() -> dict[str, str]:
    """Answer as long as the process is alive."""
    return {"status": "up"}


@router.get(
    "/ready",
    response_model=HealthView,
    summary="Check that the database answers",
    responses={503: error_responses()[503]},
)
def show_readiness(request: Request) -> dict[str, str]:
    """Answer 503 while the catalog database does not."""
    try:
        with request.app.state.lake.store.db.read_transaction() as connection:
            connection.execute(sa.text("select 1"))
    except SQLAlchemyError as error:
        what = "the catalog database does not answer"
        raise Unreachable("DATABASE_UNREACHABLE", what, fix="check that the database is running") from error
    return {"status": "ready"}

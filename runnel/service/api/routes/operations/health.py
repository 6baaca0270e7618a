"""Whether the service is alive, and whether it can work: open to everyone, and telling nothing else."""

import sqlalchemy as sa
from fastapi import APIRouter, Request
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from runnel.errors import Unreachable
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """How the service is."""

    status: str


@router.get("/health", response_model=Alive, summary="Tell whether the process is up")
async def health() -> dict[str, str]:
    """Answer, whatever else is wrong."""
    return {"status": "up"}


@router.get(
    "/ready",
    response_model=Alive,
    summary="Tell whether the database answers",
    responses={503: problems()[503]},
)
def ready(request: Request) -> dict[str, str]:
    """Answer 503 while the catalog database does not."""
    try:
        with request.app.state.lake.store.db.reading() as connection:
            connection.execute(sa.text("select 1"))
    except SQLAlchemyError as error:
        what = "the catalog database does not answer"
        raise Unreachable("DATABASE_UNREACHABLE", what, fix="check that it runs") from error
    return {"status": "ready"}

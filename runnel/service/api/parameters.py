"""The parameters that routes share, each with its bounds: what no database could hold is refused at the door."""

import re
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints

PREFIX = "/api/v1"
EVENTS = re.compile(rf"{PREFIX}/sources/[^/]+/events")  # the one path whose requests come by the thousands
NO_NUL = r"^[^\x00]*$"
MOST = 1000
DEFAULT = 100
MOST_NUMBER = 2**31 - 1
_TABLE: dict[str, Any] = {"pattern": r"^[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}$", "examples": ["ods.orders"]}
_REF = "A branch, a tag, a commit or its beginning, `main~3` or `main@2026-01-02T08:00Z`"

Text = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=NO_NUL)]
Ref = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]

At = Annotated[Ref, Query(description=f"Which version. {_REF}.", examples=["main"])]
Branch = Annotated[Ref, Query(description="Which branch.", examples=["main"])]
TablePath = Annotated[
    Ref,
    Path(
        description="A table, as `layer.name`.",
        json_schema_extra=_TABLE,
        openapi_examples={"orders": {"value": "ods.orders"}},
    ),
]
SourcePath = Annotated[
    Ref,
    Path(
        description="The table of a source, as `layer.name`.",
        json_schema_extra=_TABLE,
        openapi_examples={"events": {"value": "ods.events"}},
    ),
]
TableQuery = Annotated[Ref | None, Query(description="Only this table, as `layer.name`.")]
Name = Annotated[Ref, Path(description="Its name.")]
RunId = Annotated[Ref, Path(description="The id of a run, or its beginning.")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]
Offset = Annotated[int, Query(ge=0, le=MOST_NUMBER, description="How many to leave out at the beginning.")]
Cursor = Annotated[Ref | None, Query(description="The `next` of the page before.")]


class Body(BaseModel):
    """The body of a request: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid")

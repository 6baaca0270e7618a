"""Define the parameters that routes share, with their limits: values that no database could store are refused."""

import re
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints

API_PREFIX = "/api/v1"
EVENTS_PATH = re.compile(
    rf"{API_PREFIX}/sources/(?P<source>[^/]+)/events"
)  # the only path that may get thousands of requests
NO_NUL = r"^[^\x00]*$"
MAX_LIMIT = 1000
DEFAULT_LIMIT = 100
MAX_NUMBER = 2**31 - 1
_TABLE: dict[str, Any] = {"pattern": r"^[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}$", "examples": ["ods.orders"]}
_REF = "A branch, a tag, a commit or a unique prefix of one, `main~3` or `main@2026-01-02T08:00Z`"

Text = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=NO_NUL)]
Ref = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]

RefQuery = Annotated[Ref, Query(description=f"The version. {_REF}.", examples=["main"])]
BranchQuery = Annotated[Ref, Query(description="The branch.", examples=["main"])]
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
NamePath = Annotated[Ref, Path(description="The name.")]
RunId = Annotated[Ref, Path(description="The id of a run, or a unique prefix of it.")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items.")]
Offset = Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of items to skip.")]
Cursor = Annotated[Ref | None, Query(description="The `next` of the previous page.")]


class RequestBody(BaseModel):
    """The base of request bodies: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

"""The requests that workers serve, and their JSON: runs, plans, Spark queries, and those of operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runnel.model.operation_request import OPERATION_KINDS, OperationRequest, parse_operation_request
from runnel.model.run_request import RunRequest


@dataclass(frozen=True)
class PlanRequest:
    """A request for the plan of a run. It is stored as the run's request would be."""

    kind: ClassVar[str] = "plan"

    run: RunRequest

    @property
    def branch(self) -> str:
        """Return the branch that the run would publish to."""
        return self.run.branch

    @property
    def select(self) -> tuple[str, ...]:
        """Return what the run would select."""
        return self.run.select

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the values of parameters that `--set` sets."""
        return self.run.overrides

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], branch: str) -> "PlanRequest":
        """Return the request that `to_json` wrote."""
        return cls(RunRequest.from_json(fields, branch))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return self.run.to_json()

    def to_body(self) -> dict[str, Any]:
        """Return the body of `POST /plan`: that of `POST /runs` without what only a run needs."""
        return {name: value for name, value in self.run.to_body().items() if name not in ("verify", "message")}


@dataclass(frozen=True)
class QueryRequest:
    """A query in Spark SQL at a ref. It belongs to no branch; the queue lists it under main."""

    kind: ClassVar[str] = "query"
    branch: ClassVar[str] = "main"
    select: ClassVar[tuple[str, ...]] = ()
    overrides: ClassVar[tuple[str, ...]] = ()

    sql: str
    at: str = "main"
    engine: str = "auto"
    limit: int | None = None  # rows
    arrow: bool = False  # the worker writes the answer to an Arrow file

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "QueryRequest":
        """Return the request that `to_json` wrote."""
        at, engine = str(fields.get("at", "main")), str(fields.get("engine", "auto"))
        return cls(str(fields.get("sql", "")), at, engine, fields.get("limit"), bool(fields.get("arrow")))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return {"sql": self.sql, "at": self.at, "engine": self.engine, "limit": self.limit, "arrow": self.arrow}

    def to_body(self) -> dict[str, Any]:
        """Return the body of `POST /query`; the header `Accept` asks for Arrow."""
        body = {"sql": self.sql, "at": self.at, "engine": self.engine}
        return body if self.limit is None else {**body, "limit": self.limit}


WorkerRequest = RunRequest | PlanRequest | QueryRequest | OperationRequest


def parse_worker_request(kind: str, fields: Mapping[str, Any], branch: str) -> WorkerRequest:
    """Return the request of a kind from its stored JSON.

    >>> parse_worker_request("query", {"sql": "select 1", "at": "dev"}, "main")
    QueryRequest(sql='select 1', at='dev', engine='auto', limit=None, arrow=False)
    """
    if kind == QueryRequest.kind:
        return QueryRequest.from_json(fields)
    if kind in OPERATION_KINDS:
        return parse_operation_request(kind, fields)
    if kind == PlanRequest.kind:
        return PlanRequest.from_json(fields, branch)
    return RunRequest.from_json(fields, branch)

"""Requests of operators that only a worker can serve: they need the project's code, as lineage and a rewind do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class LineageRequest:
    """A request for the tables around a table. It belongs to no branch; the queue lists it under main."""

    kind: ClassVar[str] = "lineage"
    branch: ClassVar[str] = "main"
    select: ClassVar[tuple[str, ...]] = ()
    overrides: ClassVar[tuple[str, ...]] = ()
    is_change: ClassVar[bool] = False

    table: str
    up: bool = True
    down: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return asdict(self)


@dataclass(frozen=True)
class RewindRequest:
    """A request to reset a source's table and position to a ref; with `dry_run` only to say what would be done."""

    kind: ClassVar[str] = "rewind"
    select: ClassVar[tuple[str, ...]] = ()
    overrides: ClassVar[tuple[str, ...]] = ()
    is_change: ClassVar[bool] = True

    source: str
    to: str
    branch: str = "main"
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return asdict(self)


@dataclass(frozen=True)
class ReleaseRequest:
    """A request to release quarantined rows, as they are, or as a file corrects them.

    `location` is the file in the warehouse, `name` what its sender calls it; `limit` is the number of rows that are
    still bad in the answer.
    """

    kind: ClassVar[str] = "release"
    select: ClassVar[tuple[str, ...]] = ()
    overrides: ClassVar[tuple[str, ...]] = ()
    is_change: ClassVar[bool] = True

    table: str
    branch: str = "main"
    file: str | None = None
    location: str | None = None
    name: str | None = None
    limit: int = 100

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return asdict(self)


@dataclass(frozen=True)
class DeliveryRequest:
    """A request to deliver pending changes to one sink, or to all. The queue lists it under main."""

    kind: ClassVar[str] = "delivery"
    branch: ClassVar[str] = "main"
    select: ClassVar[tuple[str, ...]] = ()
    overrides: ClassVar[tuple[str, ...]] = ()
    is_change: ClassVar[bool] = True

    sink: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the catalog stores."""
        return asdict(self)


OperationRequest = LineageRequest | RewindRequest | ReleaseRequest | DeliveryRequest
_TYPES: dict[str, type[OperationRequest]] = {
    LineageRequest.kind: LineageRequest,
    RewindRequest.kind: RewindRequest,
    ReleaseRequest.kind: ReleaseRequest,
    DeliveryRequest.kind: DeliveryRequest,
}
OPERATION_KINDS = tuple(_TYPES)


def parse_operation_request(kind: str, fields: Mapping[str, Any]) -> OperationRequest:
    """Return the request of a kind from its stored JSON, which may have further fields, such as a trace.

    >>> parse_operation_request("rewind", {"source": "ods.orders", "to": "main~1", "trace": "00-1"})
    RewindRequest(source='ods.orders', to='main~1', branch='main', dry_run=False)
    """
    request_type = _TYPES[kind]
    names = request_type.__dataclass_fields__
    return request_type(**{name: value for name, value in fields.items() if name in names})

"""Answer requests of operators that need the flow: lineage, rewind, release, delivery."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel import temp_dirs
from runnel.client.json_views.repair import release_to_json, rewind_to_json
from runnel.errors import RunnelError, error_from_json
from runnel.model.operation_request import (
    DeliveryRequest,
    LineageRequest,
    OperationRequest,
    ReleaseRequest,
    RewindRequest,
)
from runnel.names import TableName
from runnel.project.execution.deliver_sinks import deliver_now
from runnel.project.execution.release import release
from runnel.project.execution.rewind import rewind
from runnel.project.inspection.lineage import find_lineage

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.declare.model.flow import Flow


def answer_operation(lake: "Lake", flow: "Flow", request: OperationRequest) -> dict[str, Any]:
    """Do what is requested, and return the JSON of the corresponding command."""
    match request:
        case LineageRequest():
            lineage = find_lineage(lake, TableName.parse(request.table), up=request.up, down=request.down, flow=flow)
            return lineage.json()
        case RewindRequest():
            result = rewind(lake, request.source, request.to, request.branch, dry=request.dry_run, flow=flow)
            return rewind_to_json(request.source, result)
        case ReleaseRequest():
            return release_to_json(request.table, _release(lake, flow, request), request.limit)
        case DeliveryRequest():
            return {"items": [delivery.json() for delivery in deliver_now(lake, request.sink, flow=flow)]}


def _release(lake: "Lake", flow: "Flow", request: ReleaseRequest) -> "ReleaseResult":
    if request.location is None:
        return release(lake, request.table, file=request.file, branch=request.branch, flow=flow)
    with temp_dirs.create_scoped("upload") as folder:
        corrected = Path(folder) / (request.name or "corrected")
        with closing(lake.store.io.new_input(request.location).open()) as stream:
            corrected.write_bytes(stream.read())
        try:
            return release(lake, request.table, corrected, file=request.file, branch=request.branch, flow=flow)
        except RunnelError as error:
            raise _without_folder(error, f"{folder}/") from error


def _without_folder(error: RunnelError, folder: str) -> RunnelError:
    """Return an error that names an uploaded file as its sender does, without the worker's folder."""
    fields = error.to_json_with_kind()
    return error_from_json(
        {name: value.replace(folder, "") if isinstance(value, str) else value for name, value in fields.items()}
    )

"""Hand a run request to the `runnel up` of this project over HTTP, without large imports."""

from typing import TYPE_CHECKING

from runnel.errors import Unreachable
from runnel.lake.author import default_author
from runnel.project import instance_file
from runnel.project.following.service_event_source import (
    LocalServiceConnection,
    ServiceEventSource,
    raise_unreachable,
)

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.model.run_request import RunRequest


def hand_over_run(settings: "Settings", request: "RunRequest") -> ServiceEventSource | None:
    """Let the project's service queue the run, and return its events.

    None if the service is not up, has no worker or fails: the caller then queues the request through the catalog,
    which reports what is wrong.
    """
    instance = instance_file.find_instance(settings.home)
    token = instance_file.read_token(settings.home)
    if (
        instance is None
        or token is None
        or instance.catalog != instance_file.hash_catalog_url(settings.catalog)
        or not request.fits_body
    ):
        return None
    body = {**request.to_body(), "author": default_author(), "now": True}
    connection = LocalServiceConnection(instance.url, token, settings.tls.certificate)
    try:
        with raise_unreachable():
            return ServiceEventSource(connection, str(connection.request_json("POST", "/runs", body)["run"]))
    except Unreachable:
        connection.close()
        return None

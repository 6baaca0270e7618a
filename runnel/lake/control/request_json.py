"""The JSON of a queued request as the catalog stores it: the request, what made its schedule due, and its trace."""

from typing import Any

from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.model.worker_request import WorkerRequest

_SCHEDULE_FIELDS = ("select", "reads_sources")  # what a schedule always states; of the rest only what is no default


def to_request_json(request: WorkerRequest, schedule_slot: ScheduleSlot | None, trace: str | None) -> dict[str, Any]:
    """Return the stored JSON of a request, ordered by key.

    >>> to_request_json(RunRequest(("dws.day",)), ScheduleSlot("often", 7), None)
    {'due': '#7', 'reads_sources': True, 'schedule': 'often', 'select': ['dws.day']}
    """
    fields = request.to_json()
    if schedule_slot is not None:
        defaults = RunRequest().to_json()
        fields = {
            name: value
            for name, value in fields.items()
            if name in _SCHEDULE_FIELDS or name not in defaults or value != defaults[name]
        } | schedule_slot.to_json()
    return dict(sorted((fields | ({"trace": trace} if trace else {})).items()))

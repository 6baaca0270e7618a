"""Every answer says that it is not to be guessed, embedded or stored; ETags still save the second answer."""

import pytest
import requests

from tests.service.api.api_server import Api

ANSWERS = {
    "health": ("GET", "/health", 200, "no-store"),
    "data": ("GET", "/api/v1/tables/ods.orders/rows", 200, "private, no-cache"),
    "a file": ("GET", "/api/v1/files/raw.docs/in/orders.csv", 200, "private, no-cache"),
    "a token": ("GET", "/api/v1/token", 200, "no-store"),
    "metrics": ("GET", "/metrics", 200, "no-store"),
    "the description": ("GET", "/openapi.json", 200, "no-store"),
    "an unknown path": ("GET", "/api/v1/nothing", 404, "no-store"),
    "an unknown table": ("GET", "/api/v1/tables/ods.ordres", 404, "no-store"),
    "a method that no route has": ("DELETE", "/api/v1/status", 405, "no-store"),
}


@pytest.mark.parametrize(("method", "path", "status", "caching"), ANSWERS.values(), ids=ANSWERS)
def test_headers_of_answers(seen: Api, method: str, path: str, status: int, caching: str) -> None:
    headers = {"Authorization": f"Bearer {seen.secret}"}
    answer = seen.session.request(method, seen.url + path, headers=headers, timeout=60)
    assert answer.status_code == status
    check_headers(answer, caching)


def test_headers_of_a_refused_request(seen: Api) -> None:
    answer = seen.session.get(f"{seen.url}/api/v1/tables", timeout=60)
    assert answer.status_code == 401
    check_headers(answer, "no-store")


def check_headers(answer: requests.Response, caching: str) -> None:
    """Assert that an answer has all headers."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["Cache-Control"] == caching

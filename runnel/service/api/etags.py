"""Weak ETags: a client that has the newest answer gets 304, without any data being read."""

import hashlib
import json
from typing import Any

from fastapi import FastAPI, Request, Response


class NotModified(Exception):
    """The client already has this answer."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


def set_etag(request: Request, response: Response, version: str) -> None:
    """Set an ETag made of the version that the answer shows and of the request; raise if the client has that ETag."""
    request_hash = hashlib.sha256(f"{request.url.path}?{request.url.query}".encode()).hexdigest()
    etag = f'W/"{version}.{request_hash[:16]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    client_etags = [client_etag.strip() for client_etag in request.headers.get("if-none-match", "").split(",")]
    if etag in client_etags or "*" in client_etags:
        raise NotModified(headers)
    response.headers.update(headers)


def set_content_etag(request: Request, response: Response, answer: dict[str, Any]) -> dict[str, Any]:
    """Set an ETag from the contents of an answer that no version identifies, and return the answer."""
    text = json.dumps(answer, sort_keys=True, default=str)
    set_etag(request, response, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20])
    return answer


def add_handler(app: FastAPI) -> None:
    """Make an app answer `NotModified` with status 304."""

    def answer_not_modified(_request: Request, error: Exception) -> Response:
        assert isinstance(error, NotModified)
        return Response(status_code=304, headers=error.headers)

    app.add_exception_handler(NotModified, answer_not_modified)

"""Weak ETags: who has the newest answer is told so, and nothing is read for it."""

import hashlib
import json
from typing import Any

from fastapi import FastAPI, Request, Response


class Unchanged(Exception):
    """The answer is the one that the caller has."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


def tag(request: Request, response: Response, version: str) -> None:
    """Give the answer a tag that is made of the version it shows and of what was asked; raise where it is known."""
    asked = hashlib.sha256(f"{request.url.path}?{request.url.query}".encode()).hexdigest()
    found = f'W/"{version}.{asked[:16]}"'
    headers = {"ETag": found, "Cache-Control": "private, no-cache"}
    known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    if found in known or "*" in known:
        raise Unchanged(headers)
    response.headers.update(headers)


def tag_of(request: Request, response: Response, answer: dict[str, Any]) -> dict[str, Any]:
    """Tag an answer by what it says, where no version tells it all, and return it."""
    text = json.dumps(answer, sort_keys=True, default=str)
    tag(request, response, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20])
    return answer


def handle(app: FastAPI) -> None:
    """Let an app answer 304."""

    def unchanged(request: Request, error: Exception) -> Response:
        assert isinstance(error, Unchanged)
        return Response(status_code=304, headers=error.headers)

    app.add_exception_handler(Unchanged, unchanged)

"""Odd texts in every parameter, on PostgreSQL, which can not hold them all: refused, but never a defect."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

import runnel as rn
from tests.service.api.api_server import Api, serving

ODD = ["a\0b", "\U0010ffff", "%", "main~99999999"]


@pytest.fixture
def team(catalog: str, tmp_path: Path) -> Iterator[Api]:
    """Serve an empty lake."""
    (tmp_path / "runnel.toml").write_text('[project]\nname = "team"\n')
    with rn.open(tmp_path, overrides=[f"lake.catalog={catalog}"]) as lake, serving(lake) as api:
        yield api


@pytest.mark.parametrize("catalog", ["postgresql"], indirect=True)
def test_odd_texts(team: Api) -> None:
    paths = team.app.openapi()["paths"]
    for template, methods in paths.items():
        for method, told in methods.items():
            names = [one["name"] for one in told.get("parameters", []) if one["in"] == "query"]
            asked = [f"{template}?{name}=" for name in names] if method == "get" else [template]
            for one in asked if template not in ("/api/v1/events", "/api/v1/query") else ():
                _ask(team, method, one)


def _ask(team: Api, method: str, template: str) -> None:
    path, _, query = template.partition("?")
    for odd in ODD if "{" in path or query else ():
        given = quote(odd, safe="", errors="replace")
        filled = "/".join(given if part.startswith("{") else part for part in path.split("/"))
        request = requests.Request(method.upper(), team.url).prepare()
        request.url = team.url + filled + (f"?{query}{given}" if query else "")
        request.headers["Authorization"] = f"Bearer {team.secret}"
        found = team.session.send(request, timeout=20)
        assert found.status_code < 500, f"{method} {request.url}: {found.text}"


@pytest.mark.parametrize("catalog", ["postgresql"], indirect=True)
def test_odd_bodies(team: Api) -> None:
    for odd in ODD:
        for path, body in (
            ("/branches", {"name": odd}),
            ("/branches", {"name": "x", "from": odd}),
            ("/tags", {"name": odd, "ref": odd}),
            ("/merge", {"branch": odd, "into": odd}),
            ("/query", {"sql": odd, "at": odd}),
            ("/query", {"sql": f"select '{odd}' as x from \"{odd}\""}),
            ("/runs", {"branch": odd, "select": [odd]}),
            ("/runs", {"select": [odd], "message": odd, "set": [f"a={odd}"]}),
        ):
            found = team.ask(
                "POST", path, json=body, headers={"Idempotency-Key": quote(odd, errors="replace")[:50] + path}
            )
            assert found.status_code < 500, f"{path} {body}: {found.text}"

"""Kafka over TLS, with and without a password: what is read, and what is said of certificates and passwords."""

from pathlib import Path
from typing import Any

import pytest

from runnel.declare.model.secret import Secret
from runnel.errors import RunnelError, Unreachable
from tests.connect.kafka.kafka_project import SCHEMA, A, B, Clicks
from tests.servers.http_server import certificate
from tests.servers.kafka import PASSWORD, Server

WRONG = "not hers, but secret"


@pytest.fixture
def clicks(kafka: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clicks:
    if kafka.certificate is None:
        pytest.skip("no openssl to make a certificate with")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("WRONG_PASSWORD", WRONG)
    found = Clicks(kafka, tmp_path)
    found.make()
    return found


def tls(clicks: Clicks, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(clicks.server.certificate)} | more


def sasl(clicks: Clicks, password: str = "KAFKA_PASSWORD") -> dict[str, Any]:
    who = {"sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": Secret(password)}
    return tls(clicks) | {"security.protocol": "SASL_SSL"} | who


def error(clicks: Clicks, servers: str, options: dict[str, Any]) -> RunnelError:
    with pytest.raises(RunnelError) as raised:
        clicks.feed(servers=servers, options=options).news()
    assert raised.value.at == "flows/flow.py:4" and raised.value.fix
    assert servers in raised.value.what and WRONG not in str(raised.value) and PASSWORD not in str(raised.value)
    return raised.value


def test_a_project_reads_over_tls_with_a_password(clicks: Clicks) -> None:
    options = '{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ada", '
    options += f'"sasl.password": rn.secret("KAFKA_PASSWORD"), "ssl.ca.location": "{clicks.server.certificate}"}}'
    source = f'rn.kafka("{clicks.topic}", servers="{clicks.server.sasl_ssl_servers}", schema="{SCHEMA}", options={{}})'
    clicks.project.flow(f'rn.source("ods.clicks", {source.format(options)})', orders=None)
    for value in (A, B):
        clicks.put(value)
        clicks.run()
    assert clicks.rows() == [(1, "a"), (2, "b")]
    kept = b"".join(path.read_bytes() for path in clicks.root.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept


def test_a_password_that_is_not_sent(clicks: Clicks) -> None:
    clicks.put(A)
    options = sasl(clicks) | {"sasl.mechanism": "SCRAM-SHA-256"}
    assert clicks.feed(servers=clicks.server.sasl_ssl_servers, options=options).ids() == [1]
    wrong = sasl(clicks, "WRONG_PASSWORD") | {"sasl.mechanism": "SCRAM-SHA-256"}
    assert error(clicks, clicks.server.sasl_ssl_servers, wrong).code == "KAFKA_REFUSED"


def test_tls_alone(clicks: Clicks) -> None:
    clicks.put(A)
    assert clicks.feed(servers=clicks.server.ssl_servers, options=tls(clicks)).ids() == [1]


def test_a_wrong_password_is_refused(clicks: Clicks) -> None:
    found = error(clicks, clicks.server.sasl_ssl_servers, sasl(clicks, "WRONG_PASSWORD"))
    assert (found.code, found.exit_code) == ("KAFKA_REFUSED", 2) and "Invalid username or password" in found.what


def test_a_certificate_that_is_not_trusted(clicks: Clicks, tmp_path: Path) -> None:
    servers = clicks.server.ssl_servers
    another = str(certificate(tmp_path))  # of the same name
    for options in ({"security.protocol": "SSL"}, tls(clicks, **{"ssl.ca.location": another})):
        found = error(clicks, servers, options)
        assert (found.code, found.exit_code) == ("KAFKA_UNTRUSTED", 1) and "ssl.ca.location" in str(found.fix)


def test_a_certificate_of_another_host(clicks: Clicks) -> None:
    found = error(clicks, clicks.server.ssl_servers.replace("127.0.0.1", "localhost"), tls(clicks))
    assert found.code == "KAFKA_UNTRUSTED" and "is for another host" in found.what


def test_a_port_that_speaks_otherwise(clicks: Clicks) -> None:
    found = error(clicks, clicks.server.ssl_servers, {})
    assert isinstance(found, Unreachable) and "security.protocol" in str(found.fix)


def test_a_certificate_that_is_no_file(clicks: Clicks) -> None:
    options = tls(clicks, **{"ssl.ca.location": "/no/such/ca.pem"})
    with pytest.raises(RunnelError, match=r"ssl\.ca\.location") as raised:
        clicks.feed(servers=clicks.server.ssl_servers, options=options).news()
    assert raised.value.code == "KAFKA_OPTIONS"

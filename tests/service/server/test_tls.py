"""TLS of the service: refused without it beyond this machine, by files, and what its clients trust."""

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

import runnel as rn
from runnel.cli.main import main
from runnel.declare.settings import load_settings
from runnel.declare.tls_settings import TlsSettings
from runnel.errors import Mistake, Unreachable
from runnel.lake.control import tokens
from runnel.project.following.service_event_source import LocalServiceConnection
from runnel.service.server import server_process
from runnel.service.server.server_process import ServerProcess
from runnel.service.server.tls import check_exposure
from runnel.service.supervisor import make_health_probe
from tests.servers.http_server import certificate
from tests.service.running_service import until

HEAD = '[project]\nname = "shop"\n[service]\nport = 0\n'
FILES = 'tls_cert = "certificate.pem"\ntls_key = "key.pem"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    (tmp_path / "runnel.toml").write_text(HEAD + FILES)
    certificate(tmp_path)
    return tmp_path


EXPOSURES = {
    "this machine": ("127.0.0.1", "", True),
    "this machine, IPv6": ("::1", "", True),
    "by name": ("localhost", "", True),
    "all addresses": ("0.0.0.0", "", False),
    "all addresses, IPv6": ("::", "", False),
    "an address of the network": ("10.0.0.7", "", False),
    "a name": ("lake.example.com", "", False),
    "behind a proxy": ("0.0.0.0", 'tls = "proxy"\n', True),
    "with a certificate": ("0.0.0.0", FILES, True),
}


@pytest.mark.parametrize(("host", "lines", "is_allowed"), EXPOSURES.values(), ids=EXPOSURES)
def test_no_service_listens_on_the_network_without_tls(project: Path, host: str, lines: str, is_allowed: bool) -> None:
    (project / "runnel.toml").write_text(HEAD + lines)
    settings = replace(load_settings(project), host=host)
    if is_allowed:
        check_exposure(settings)
        return
    with pytest.raises(Mistake) as refused:
        check_exposure(settings)
    assert refused.value.code == "SERVICE_TLS" and f"{host}:0 without TLS" in refused.value.what
    assert "service.tls_cert" in str(refused.value.fix) and 'service.tls = "proxy"' in str(refused.value.fix)


def test_the_service_refuses_it_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runnel.toml").write_text(HEAD + 'host = "0.0.0.0"\n')
    with rn.open(tmp_path) as lake, pytest.raises(Mistake, match="SERVICE_TLS"):
        ServerProcess(lake)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["runnel", "up"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "SERVICE_TLS: the service would listen on 0.0.0.0:0 without TLS" in capsys.readouterr().err


def encrypt_key(folder: Path) -> None:
    words = ["openssl", "ec", "-in", folder / "key.pem", "-aes256", "-passout", "pass:x", "-out", folder / "locked.pem"]
    subprocess.run(words, check=True, capture_output=True)
    (folder / "locked.pem").replace(folder / "key.pem")


def replace_key(folder: Path) -> None:
    (folder / "other").mkdir()
    certificate(folder / "other")
    (folder / "other/key.pem").replace(folder / "key.pem")


BROKEN = {
    "no certificate": (lambda folder: (folder / "certificate.pem").unlink(), "`service.tls_cert` can't be read"),
    "no key": (lambda folder: (folder / "key.pem").unlink(), "`service.tls_key` can't be read"),
    "no PEM": (lambda folder: (folder / "certificate.pem").write_text("x"), "can't be used for TLS"),
    "another's key": (replace_key, "can't be used for TLS"),
    "a key with a password": (encrypt_key, "can't be used for TLS"),
}


@pytest.mark.parametrize(("break_files", "what"), BROKEN.values(), ids=BROKEN)
def test_a_certificate_that_can_not_be_used(project: Path, break_files, what: str) -> None:  # type: ignore[no-untyped-def]
    break_files(project)
    with pytest.raises(Mistake) as refused:
        check_exposure(load_settings(project))
    assert refused.value.code == "SERVICE_TLS" and what in refused.value.what and refused.value.fix


SETTINGS = {
    "a key is missing": ('tls_cert = "a.pem"\n', "`service.tls_cert` is set and `service.tls_key` is not"),
    "a certificate is missing": ('tls_key = "a.pem"\n', "`service.tls_key` is set and `service.tls_cert` is not"),
    "another word": ('tls = "prxy"\n', "`service.tls` can't be 'prxy'; close: `proxy`"),
}


@pytest.mark.parametrize(("lines", "what"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_do_not_fit(tmp_path: Path, lines: str, what: str) -> None:
    (tmp_path / "runnel.toml").write_text(HEAD + lines)
    with pytest.raises(Mistake) as refused:
        load_settings(tmp_path)
    assert refused.value.code == "PROJECT_SETTING" and what in refused.value.what and refused.value.fix


def test_settings_name_files_from_the_folder_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text(HEAD + 'tls_cert = "a.pem"\ntls_key = "/etc/b.pem"\n')
    assert load_settings(tmp_path).tls == TlsSettings(tmp_path / "a.pem", Path("/etc/b.pem"))


@pytest.fixture
def served(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ServerProcess, str]]:
    """Serve a lake over TLS; return the server and a token."""
    monkeypatch.setattr(server_process, "_CERTIFICATE_SECONDS", 0.05)
    with rn.open(project) as lake:
        secret = tokens.create(lake.store.db, "ada", "read")
        server = ServerProcess(lake)
        thread = threading.Thread(target=server.run)
        thread.start()
        probe = make_health_probe(server.url)
        until(lambda: probe("") is not None, 30, lambda: "it does not answer", 0.02)
        yield server, secret
        server.stop.set()
        thread.join(30)
        assert not thread.is_alive()


def test_clients_check_the_certificate(
    served: tuple[ServerProcess, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, secret = served[0].url, served[1]
    assert url.startswith("https://127.0.0.1:")
    with pytest.raises(Unreachable) as refused:
        rn.open(url, token=secret)
    assert "its certificate is not trusted" in refused.value.what and "RUNNEL_CA" in str(refused.value.fix)
    monkeypatch.setenv("RUNNEL_CA", str(project / "certificate.pem"))
    with rn.open(url, token=secret) as lake:
        assert lake.tables() == []
    monkeypatch.setenv("RUNNEL_CA", str(project / "nothing.pem"))
    with pytest.raises(Mistake, match="which is no file"):
        rn.open(url, token=secret)
    with pytest.raises(requests.ConnectionError):
        requests.get(url.replace("https:", "http:") + "/health", timeout=10)


def test_commands_of_the_project_trust_its_certificate_only_and_a_renewed_one(
    served: tuple[ServerProcess, str], project: Path
) -> None:
    server, secret = served

    def read_name() -> str:
        connection = LocalServiceConnection(server.url, secret, project / "certificate.pem")
        try:
            return str(connection.request_json("GET", "/token")["token"])
        except ssl.SSLCertVerificationError as error:
            return str(error)
        finally:
            connection.close()

    assert read_name() == "ada"
    (project / "new").mkdir()
    certificate(project / "new")
    (project / "new/certificate.pem").replace(project / "certificate.pem")
    until(lambda: "certificate" in str(server._problems.json()), 30, lambda: "nobody noticed", 0.02)
    assert "does not have the certificate" in read_name(), "the key is still the old one, so it is not used yet"
    (project / "new/key.pem").replace(project / "key.pem")
    until(lambda: read_name() == "ada", 30, read_name, 0.05)

"""Translate this machine's proxy settings and CA certificates into options of a JVM.

Java reads neither the operating system's certificates nor the usual proxy variables, so that behind a company's proxy
its downloads fail although those of other programs succeed. Opens no connection.
"""

import hashlib
import os
import ssl
import struct
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

_STORE_SECRET = "changeit"  # the default password: a trust store is not secret, but needs one


def build_java_options(folder: Path) -> list[str]:
    """Return options for a JVM that downloads files; write the trust store that they name into `folder`."""
    environment_options = os.environ.get("JAVA_TOOL_OPTIONS", "") + os.environ.get("JDK_JAVA_OPTIONS", "")
    options = []
    if "javax.net.ssl.trustStore" not in environment_options:
        options += _build_trust_options(folder / "trust.jks")
    if ".proxyHost" not in environment_options:
        options += build_proxy_options(getproxies())
    return options


def _build_trust_options(path: Path) -> list[str]:
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    path.write_bytes(build_key_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_SECRET}",
    ]


def build_key_store(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS, version 2) that trusts these DER certificates."""
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, der in enumerate(certificates):
        parts += [struct.pack(">I", 2), _encode_text(f"ca{number}"), struct.pack(">Q", 0), _encode_text("X.509")]
        parts += [struct.pack(">I", len(der)), der]
    body = b"".join(parts)
    digest_prefix = _STORE_SECRET.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(digest_prefix + body, usedforsecurity=False).digest()


def _encode_text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def build_proxy_options(proxies: dict[str, str]) -> list[str]:
    """Return the options that correspond to `https_proxy`, `http_proxy` and `no_proxy`.

    >>> build_proxy_options({"https": "http://proxy:3128", "no": "localhost,.corp"})
    ['-Dhttps.proxyHost=proxy', '-Dhttps.proxyPort=3128', '-Dhttp.nonProxyHosts=localhost|*.corp']
    """
    options = []
    for scheme in ("https", "http"):
        proxy = proxies.get(scheme, "")
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        if parts.hostname:
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    hosts = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and hosts:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in hosts))
    return options

"""Tell Java what this machine already says about reaching the network.

Java reads neither the operating system's certificates nor the usual proxy variables, so behind a company's proxy its
downloads fail where every other program's succeed. Opens no connection.
"""

import hashlib
import os
import ssl
import struct
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

_STORE_SECRET = "changeit"  # the customary one: a trust store holds nothing secret, the format wants a password


def java_options(folder: Path) -> list[str]:
    """Return the options of a JVM that must download; the trust store they name is written into `folder`."""
    given = os.environ.get("JAVA_TOOL_OPTIONS", "") + os.environ.get("JDK_JAVA_OPTIONS", "")
    options = []
    if "javax.net.ssl.trustStore" not in given:
        options += _trust(folder / "trust.jks")
    if ".proxyHost" not in given:
        options += proxy_options(getproxies())
    return options


def _trust(path: Path) -> list[str]:
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    path.write_bytes(key_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_STORE_SECRET}",
    ]


def key_store(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS, version 2) that trusts these DER certificates."""
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, der in enumerate(certificates):
        parts += [struct.pack(">I", 2), _text(f"ca{number}"), struct.pack(">Q", 0), _text("X.509")]
        parts += [struct.pack(">I", len(der)), der]
    body = b"".join(parts)
    salt = _STORE_SECRET.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(salt + body, usedforsecurity=False).digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def proxy_options(proxies: dict[str, str]) -> list[str]:
    """Return the options that say the same as `https_proxy`, `http_proxy` and `no_proxy`.

    >>> proxy_options({"https": "http://proxy:3128", "no": "localhost,.corp"})
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

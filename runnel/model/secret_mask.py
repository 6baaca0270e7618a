"""Hide the values of secrets in text for people: those that settings read from elsewhere, or that their names reveal.

Pure.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from runnel.errors import RunnelError

MASK = "***"
SECRET_WORDS = r"passw(?:or)?d|passphrase|secret|token|credential|(?:access|account|api|private)[._-]?key"
_SECRET_NAME = re.compile(SECRET_WORDS, re.IGNORECASE)
_PUBLIC_NAME = re.compile(r"(?:class|enabled|endpoint|file|impl|interval|path|providers?|type|ur[il])\Z", re.IGNORECASE)
_RESERVED = re.compile(rb"[^A-Za-z0-9_.~-]")  # bytes that addresses have as %20
_MIN_LENGTH = 4  # of a value that is hidden: a log without each 5 would be unreadable


def is_secret_name(name: str) -> bool:
    """Tell whether the value of a setting of this name is secret.

    >>> is_secret_name("spark.hadoop.fs.s3a.secret.key"), is_secret_name("fs.s3a.aws.credentials.provider")
    (True, False)
    """
    return bool(_SECRET_NAME.search(name)) and not _PUBLIC_NAME.search(name)


def mask_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings without the values whose names say that they are secret.

    >>> mask_settings({"fs.s3a.secret.key": "abc", "spark.driver.memory": "4g"})
    {'fs.s3a.secret.key': '***', 'spark.driver.memory': '4g'}
    """
    return {name: MASK if is_secret_name(name) else value for name, value in settings.items()}


@dataclass(frozen=True)
class SecretMask:
    """Hides values in text, also as they are written in Python, JSON and addresses.

    >>> SecretMask(frozenset(["hush hush"])).hide("GET /?key=hush%20hush by 'hush hush'")
    "GET /?key=*** by '***'"
    """

    secrets: frozenset[str] = frozenset()

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def hide_in_error(self, error: RunnelError) -> None:
        """Remove the secrets from the text of an error, and of the others that it stands for."""
        error.what = self.hide(error.what)
        error.at = None if error.at is None else self.hide(error.at)
        error.fix = None if error.fix is None else self.hide(error.fix)
        for other in error.others:
            self.hide_in_error(other)

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        values = [secret for secret in self.secrets if len(secret) >= _MIN_LENGTH]
        forms = {
            form
            for value in values
            for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1], _encode_for_address(value))
        }
        return tuple(sorted(forms, key=len, reverse=True))  # a secret may contain another one


def _encode_for_address(value: str) -> str:
    encoded = _RESERVED.sub(lambda match: b"%%%02X" % match[0][0], value.encode("utf-8", "surrogateescape"))
    return encoded.decode("ascii")

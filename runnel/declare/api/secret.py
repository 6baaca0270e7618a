"""`rn.secret`: name a secret in a flow file."""

from runnel.declare.model.secret import Secret
from runnel.declare.registry import current_registry


def secret(name: str) -> Secret:
    """Name a secret, such as `rn.secret("PG_PASSWORD")`: the environment variable that holds it."""
    if not isinstance(name, str) or not name.isidentifier():
        fix = 'name an environment variable: rn.secret("PG_PASSWORD")'
        registry = current_registry()
        registry.reject(
            "DECLARE_SECRET", "a secret is named by an environment variable", at=registry.caller_location(), fix=fix
        )
        return Secret("?")
    return Secret(name)

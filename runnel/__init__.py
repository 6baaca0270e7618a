"""Runnel: data flows on a versioned lake."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["RunnelError", "__version__", "open"]

if TYPE_CHECKING:
    from runnel.client import open
    from runnel.errors import RunnelError


def __getattr__(name: str) -> object:
    # Loaded on first use, so that importing Runnel costs next to nothing.
    if name == "open":
        from runnel.client import open as found

        return found
    if name == "RunnelError":
        from runnel.errors import RunnelError as found_error

        return found_error
    raise AttributeError(f"module 'runnel' has no attribute {name!r}")

"""The client: `rn.open`, one face for notebooks, tests and scripts."""

from runnel.client.opening import open

__all__ = ["open"]

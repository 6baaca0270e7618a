"""The client: `rn.open`, one face for notebooks, tests and scripts."""

from runnel.client.open import open

__all__ = ["open"]

"""Fingerprints: what a task's result depends on beside its inputs, and what changed between two of them."""

from runnel.plan.fingerprint.declared import source_fingerprint
from runnel.plan.fingerprint.difference import difference
from runnel.plan.fingerprint.fingerprints import Fingerprint, Fingerprints, fingerprint
from runnel.plan.fingerprint.unit import Part

__all__ = ["Fingerprint", "Fingerprints", "Part", "difference", "fingerprint", "source_fingerprint"]

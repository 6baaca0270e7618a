"""Merge, revert and rewind: versions that follow from other versions.

Published by `lake.publish`.
"""

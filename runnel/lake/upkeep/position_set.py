"""Hold the positions of many rows of a file in little memory: the gaps between them, compressed.

All rows of a file take hardly any memory, rows at random about a byte each.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_GAP_TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True)
class PositionSet:
    """The positions of some rows of a file, each once; can be pickled."""

    count: int
    compressed_gaps: bytes = field(repr=False)
    gap_type: str

    @classmethod
    def build(cls, positions: "Sequence[int] | np.ndarray[Any, Any]") -> "PositionSet":
        """Return the set of some positions, in any order.

        >>> PositionSet.build([7, 3, 3, 500]).to_array().tolist(), PositionSet.build([]).to_array().tolist()
        ([3, 7, 500], [])
        """
        sorted_positions = np.unique(np.asarray(positions, dtype=np.int64))
        gaps = np.diff(sorted_positions, prepend=np.int64(0))
        largest_gap = int(gaps.max()) if len(gaps) else 0
        gap_type = next(kind for kind in _GAP_TYPES if largest_gap <= np.iinfo(kind).max)
        return cls(len(gaps), zlib.compress(gaps.astype(gap_type).tobytes(), 1), np.dtype(gap_type).name)

    def to_array(self) -> "np.ndarray[Any, Any]":
        """Return the positions in order."""
        gaps = np.frombuffer(zlib.decompress(self.compressed_gaps), dtype=self.gap_type)
        return np.cumsum(gaps.astype(np.int64))


NO_POSITIONS = PositionSet.build(())

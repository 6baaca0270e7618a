"""The positions of erased rows come back as they were, and take little memory."""

import pickle
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runnel.lake.upkeep.position_set import PositionSet


@given(positions=st.lists(st.integers(0, 2**40)))
def test_positions_come_back_in_order(positions: list[int]) -> None:
    position_set = PositionSet.build(positions)
    assert position_set.to_array().tolist() == sorted(set(positions))
    assert position_set.count == len(set(positions))
    assert position_set == PositionSet.build([*reversed(positions), *positions])


def test_positions_take_little_memory() -> None:
    everything = PositionSet.build(np.arange(1_000_000))
    at_random = PositionSet.build(random.Random(1).sample(range(100_000_000), 1_000_000))
    assert len(pickle.dumps(everything)) < 10_000
    assert len(pickle.dumps(at_random)) < 2_000_000  # 8 bytes a row in an array

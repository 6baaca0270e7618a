"""Keep a project going in one process: sources that are read on and on, streams, and what follows their changes."""

from runnel.client.keep.keeper import Keeper as Keeper

"""Compare Runnel with itself at an earlier commit: the same commands, in turns, on one machine."""

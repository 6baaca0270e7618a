"""The versioned lake: branches, commits, publish, merge, diff, files, upkeep."""

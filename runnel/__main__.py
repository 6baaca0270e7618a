"""Run the command `runnel` as `python -m runnel`."""

from runnel.cli.main import main

main()

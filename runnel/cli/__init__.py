"""The command line: one file per noun, thin; commands of flows in `flow/`, of the lake in `lake/`.

May import every other package.
"""

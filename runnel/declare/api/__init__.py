"""The public functions that flow files call: `rn.task`, `rn.source`, `rn.schedule`, ...

Each checks its options and adds a declaration to the registry.
"""

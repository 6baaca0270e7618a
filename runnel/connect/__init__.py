"""Sources and sinks: one folder per outside system.

May import `spark`, `lake`, `plan` and `declare`.
"""

"""The catalog database: connections, schema, locks, migrations.

The lowest package of the lake.
"""

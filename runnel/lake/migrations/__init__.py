"""The history of the catalog database's schema, one module a step."""

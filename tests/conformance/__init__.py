"""Suites that others wrote, fetched from the registries and never committed: `make test-conformance`."""

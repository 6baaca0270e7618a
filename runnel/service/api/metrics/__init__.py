"""Figures for Prometheus.

Reads the catalog database.
"""

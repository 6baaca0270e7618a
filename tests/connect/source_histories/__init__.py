"""Histories of sources of files, played against a real lake and against a model in memory."""

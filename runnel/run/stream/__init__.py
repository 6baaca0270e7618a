"""Streams: tasks that go on from where they were, batch by batch, each published by itself and once."""

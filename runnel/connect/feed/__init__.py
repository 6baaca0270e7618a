"""Feeds: sources that are no files. Each says what is new without Spark, and fetches it into files."""

from runnel.connect.feed.news import Feed, Fetched, News, Part, Progress, State

__all__ = ["Feed", "Fetched", "News", "Part", "Progress", "State"]

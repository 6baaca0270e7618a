"""The REST API: the nouns of the command line over HTTP, under /api/v1. No Spark, and no code of users."""

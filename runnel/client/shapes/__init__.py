"""The nouns as JSON, for the command line and the REST API alike."""

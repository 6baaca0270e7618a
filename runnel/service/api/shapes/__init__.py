"""What the command line prints as JSON, as functions. Nothing here knows HTTP."""

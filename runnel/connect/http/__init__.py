"""REST APIs as sources: walked page by page, politely, with what is new since the last time."""

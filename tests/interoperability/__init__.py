"""Other engines read and write the lake straight, and everybody sees the same rows."""

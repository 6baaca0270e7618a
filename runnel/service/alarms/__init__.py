"""What is wrong with a lake, and who is told."""

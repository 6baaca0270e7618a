"""What tests promise in one process holds on a Spark cluster too, also if its parts are killed."""

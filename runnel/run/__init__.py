"""Run: compute a plan on Spark, check it, publish it."""

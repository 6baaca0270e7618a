"""The Spark session: settings, slots, interrupts.

The one place that starts and stops Spark.
"""

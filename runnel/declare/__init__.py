"""What users declare: flows, options and settings.

Pure: no Spark, clock or network.
"""

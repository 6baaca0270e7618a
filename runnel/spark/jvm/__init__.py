"""The JVM below the session: Java, jars, class-data archive, launch.

Imports no pyspark before it is launched.
"""

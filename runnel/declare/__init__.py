"""What users write: projects and their settings. Pure: no Spark, clock or network."""

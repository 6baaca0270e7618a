from tests.spark.fixtures import spark  # noqa: F401

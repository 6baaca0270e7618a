"""The jar with Spark's own SQL tests, pinned, fetched once by the Ivy that comes with Spark.

Spark's `--packages` knows no classifiers, so Ivy is asked directly; which repository it asks is its own setting.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from runnel.spark.jvm import cache_dir, network_options
from runnel.spark.jvm.command_line import find_spark_home
from runnel.spark.jvm.jars import Jar, has_pinned_sum, is_present
from runnel.spark.jvm.java_home import find_java

GOLDEN = Jar(
    "org.apache.spark",
    "spark-sql_2.13",
    "4.1.3-tests",
    46_689_177,
    "e3302864af66035c2dd22fda0d980e72a456ef39531bcbcaef320886622bac14",
)
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="runnel" module="conformance"/>
  <dependencies>
    <dependency org="{group}" name="{name}" rev="{version}" transitive="false">
      <artifact name="{name}" type="jar" ext="jar" m:classifier="{classifier}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def golden_jar() -> Path:
    """Return the path of the jar in the cache; fetch it if it is not there, or copy it from `RUNNEL_JARS`."""
    home = cache_dir.ensure_folder("jars")
    with cache_dir.lock_file(home / ".lock"):
        if not is_present(home, GOLDEN):
            with TemporaryDirectory(prefix="incoming-", dir=home) as staging:
                given = os.environ.get("RUNNEL_JARS")
                jar = Path(given) / GOLDEN.file_name if given else _download(Path(staging))
                if not has_pinned_sum(jar, GOLDEN):
                    raise SystemExit(f"{GOLDEN.file_name} has the wrong SHA-256 sum and will not be used")
                shutil.copyfile(jar, Path(staging) / "whole")
                (Path(staging) / "whole").replace(home / GOLDEN.file_name)
    return home / GOLDEN.file_name


def _download(staging: Path) -> Path:
    version, _, classifier = GOLDEN.version.partition("-")
    module = staging / "ivy.xml"
    module.write_text(
        _MODULE.format(group=GOLDEN.group, name=GOLDEN.name, version=version, classifier=classifier), encoding="utf-8"
    )
    command = [
        str(find_java().executable),
        *network_options.build_java_options(staging),
        "-cp",
        str(find_spark_home() / "jars" / "*"),
    ]
    command += ["org.apache.ivy.Main", "-cache", str(staging / "ivy"), "-ivy", str(module)]
    command += ["-retrieve", f"{staging}/[artifact]-[revision]-[classifier].[ext]"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    jar = staging / GOLDEN.file_name
    if not jar.is_file():
        raise SystemExit(f"could not download {GOLDEN.file_name}:\n{outcome.stdout[-2000:]}{outcome.stderr[-2000:]}")
    return jar

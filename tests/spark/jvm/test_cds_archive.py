import os
import shutil

import pytest

from runnel.spark import cds_archive_builder
from runnel.spark.jvm import cache_dir, cds_archive
from runnel.spark.jvm.command_line import JvmCommand, build_class_path
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import find_java
from tests.spark.program_runner import outcome


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return a command with the real class path, in a cache that has the jars and no archive."""
    jars = ensure_jars(find_java())
    monkeypatch.setenv("RUNNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNNEL_CDS", "on")
    home = cache_dir.ensure_folder("jars")
    for path in jars:
        (home / path.name).symlink_to(path)
    return JvmCommand(find_java(), (), build_class_path(tuple(home / path.name for path in jars), {}), (), "local")


def place(command, contents=b"archive"):
    path = cds_archive.archive_path(command.java, command.class_path)
    path.write_bytes(contents)
    return path


@pytest.mark.spark
def test_broken_archive_goes_unnoticed(command, tmp_path):
    path = place(command, b"not an archive" * 10_000)
    assert cds_archive.find_archive(command) == path
    assert outcome("count", tmp_path, RUNNEL_CDS="ready") == (0, "rows 7", "")


def test_archive_fits_until_a_jar_changes(command, tmp_path):
    jar = tmp_path / "extra.jar"
    shutil.copyfile(command.class_path[-1], jar)
    longer = JvmCommand(command.java, (), (*command.class_path, jar), (), "local")
    place(longer)
    assert cds_archive.find_archive(longer)
    assert not cds_archive.find_archive(command)
    os.utime(jar, (1, 1))
    assert not cds_archive.find_archive(longer)


def test_folders_and_a_switch_do_without(command, tmp_path, monkeypatch):
    place(command)
    assert not cds_archive.find_archive(JvmCommand(command.java, (), (*command.class_path, tmp_path), (), "local"))
    monkeypatch.setenv("RUNNEL_CDS", "off")
    assert not cds_archive.find_archive(command)


def test_one_builder_at_a_time(command):
    with cache_dir.lock_file(cache_dir.ensure_folder("archives") / ".lock"):
        assert cds_archive.is_building()
        assert cds_archive_builder.build(command.java, command.class_path, wait=False) is None
        cds_archive.build_in_background(command)
    assert not cds_archive.is_building()
    assert not (cache_dir.ensure_folder("logs") / "archive.log").exists()


def test_failed_build_is_not_tried_at_every_start(command):
    path = cds_archive.archive_path(command.java, command.class_path)
    path.with_suffix(".failed").write_text("no such option")
    cds_archive.build_in_background(command)
    assert cds_archive.read_failure(path) == "no such option"
    assert not (cache_dir.ensure_folder("logs") / "archive.log").exists()


def test_old_archives_go(command):
    home = cache_dir.ensure_folder("archives")
    for age in (1, 2, 3):
        (home / f"old{age}.jsa").write_bytes(b"")
        os.utime(home / f"old{age}.jsa", (age, age))
    path = place(command)
    cds_archive.prune(path)
    assert {found.name for found in home.glob("*.jsa")} == {path.name, "old3.jsa"}

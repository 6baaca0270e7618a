"""Settings come from files, environments, variables and --set, and every mistake is told."""

from pathlib import Path

import pytest

from runnel.declare.settings import find_root, load_settings
from runnel.errors import Mistake


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n[params]\nmin = 1\n')
    return tmp_path


def test_only_the_name_is_required(project: Path) -> None:
    settings = load_settings(project)
    assert settings.name == "shop"
    assert settings.catalog == f"sqlite:///{project}/.runnel/catalog.db"
    assert settings.warehouse == f"{project}/.runnel/warehouse"
    assert (settings.host, settings.port, settings.master) == ("127.0.0.1", 8470, "local[*]")


def test_later_ones_win(project: Path) -> None:
    (project / "runnel.prod.toml").write_text(
        '[lake]\ncatalog = "postgresql://a@h/b"\n[service]\nport = 1\n[params]\nmin = 2\n'
    )
    assert load_settings(project).params == {"min": 1}
    assert load_settings(project, env="prod").port == 1
    environ = {"RUNNEL__SERVICE__PORT": "2", "RUNNEL__PARAMS__MIN": "3", "OTHER": "x"}
    assert load_settings(project, env="prod", environ=environ).port == 2
    found = load_settings(project, env="prod", environ=environ, overrides=["service.port=3", "min=4"])
    assert (found.port, found.params, found.catalog) == (3, {"min": "4"}, "postgresql://a@h/b")


def test_dotted_keys_of_spark_need_no_quotes(project: Path) -> None:
    text = '[project]\nname="s"\n[spark.conf]\nspark.sql.session.timeZone = "UTC"\n"spark.ui.enabled" = false\n'
    (project / "runnel.toml").write_text(text)
    assert load_settings(project).conf == {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}


def test_secrets_come_from_elsewhere_and_are_not_shown(project: Path) -> None:
    (project / "runnel.toml").write_text(
        '[project]\nname="s"\n[lake]\ncatalog = { env = "CATALOG" }\nstorage = { key = { file = "key.txt" } }\n'
    )
    (project / "key.txt").write_text("abc\n")
    settings = load_settings(project, environ={"CATALOG": "postgresql://u:secret@h/d"})
    assert settings.catalog == "postgresql://u:secret@h/d" and settings.storage == {"key": "abc"}
    assert settings.secrets == {"postgresql://u:secret@h/d", "abc"}
    with pytest.raises(Mistake, match="CATALOG, which is not set"):
        load_settings(project)


def test_keys_in_the_file_are_secret_by_their_names(project: Path) -> None:
    (project / "runnel.toml").write_text(
        '[project]\nname = { env = "NAME" }\n'
        '[lake]\nstorage = { "s3.secret-access-key" = "abcdefgh1", "s3.region" = "eu-central-1" }\n'
        '[spark.conf]\nspark.hadoop.fs.s3a.secret.key = "abcdefgh2"\nspark.driver.memory = "12345678g"\n'
        'spark.hadoop.fs.s3a.aws.credentials.provider = "com.amazonaws.auth.Profile"\nspark.token.length = "12"\n'
    )
    assert load_settings(project, environ={"NAME": "shop"}).secrets == {"abcdefgh1", "abcdefgh2"}


@pytest.mark.parametrize("port", ["99999", "65536"])
def test_a_port_out_of_range(project: Path, port: str) -> None:
    with pytest.raises(Mistake) as raised:
        load_settings(project, environ={"RUNNEL__SERVICE__PORT": port})
    assert (raised.value.code, raised.value.what) == ("PROJECT_SETTING", "`service.port` is not a port")
    assert raised.value.fix == "write a number from 1 to 65535; 0 is any free port"


SECRET = "hunter2"
HIDDEN = {
    "text for a table": ({"RUNNEL__LAKE__STORAGE": f"s3.secret-access-key={SECRET}"}, ()),
    "text for Spark's settings": ({"RUNNEL__SPARK__CONF": f"spark.hadoop.fs.s3a.secret.key={SECRET}"}, ()),
    "text for headers": ({"RUNNEL__TELEMETRY__HEADERS": f"authorization={SECRET}"}, ()),
    "no number": ({"RUNNEL__SERVICE__PORT": SECRET}, ()),
    "no duration": ({"RUNNEL__SERVICE__QUERY_TIMEOUT": SECRET}, ()),
    "no address": ({"RUNNEL__OPENLINEAGE__URL": SECRET}, ()),
    "no collector": ({"RUNNEL__TELEMETRY__ENDPOINT": f"ftp://ada:{SECRET}@h"}, ()),
    "--set without a name": ({}, (f"={SECRET}",)),
    "--set without a value": ({}, (SECRET,)),
    "--set of a table": ({}, (f"lake.storage={SECRET}",)),
    "an unknown setting": ({"RUNNEL__LAKE__STORAGE__KEY": SECRET}, ()),
}


@pytest.mark.parametrize(("environ", "overrides"), HIDDEN.values(), ids=HIDDEN)
def test_no_value_is_told(project: Path, environ: dict[str, str], overrides: tuple[str, ...]) -> None:
    with pytest.raises(Mistake) as raised:
        load_settings(project, environ=environ, overrides=overrides)
    assert SECRET not in str(raised.value) and raised.value.fix


def test_what_is_said_about_a_table_that_is_text(project: Path) -> None:
    with pytest.raises(Mistake) as raised:
        load_settings(project, environ={"RUNNEL__LAKE__STORAGE": "s3.secret-access-key=hunter2"})
    assert str(raised.value) == (
        "PROJECT_SETTING: `lake.storage` must be a table, not text\n  at the environment\n"
        "  fix: write a [lake.storage] section in runnel.toml"
    )


def test_settings_do_not_show_what_may_be_secret(project: Path) -> None:
    (project / "runnel.toml").write_text(
        f'[project]\nname="s"\n[lake]\ncatalog = "postgresql://u:{SECRET}@h/d"\nstorage = {{ key = "{SECRET}" }}\n'
        f'[spark]\nconf = {{ key = "{SECRET}" }}\n[params]\nkey = "{SECRET}"\n'
    )
    assert SECRET not in repr(load_settings(project))


MISTAKES = {
    "unknown key": ('[project]\nname="s"\n[lake]\ncatalogue = "x"', "close: `catalog`"),
    "unknown section": ('[project]\nname="s"\n[lakes]\nx = 1', "close: `lake`"),
    "wrong type": ('[project]\nname="s"\n[service]\nport = "no"', "a whole number"),
    "no name": ("[lake]\n", "project.name"),
    "section as value": ('project = "shop"', "is a section"),
    "broken TOML": ("[project\n", "not valid TOML"),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told(project: Path, text: str, said: str) -> None:
    (project / "runnel.toml").write_text(text)
    with pytest.raises(Mistake, match=said.replace(".", r"\.")):
        load_settings(project)


def test_all_wrong_settings_are_named_at_once(project: Path) -> None:
    text = (
        '[project]\nname="s"\nowener = "ada"\n[lake]\ncatalogue = "x"\n[services]\nport = 1\n'
        '[service]\nport = 99999\nquery_timeout = "soon"\n'
    )
    (project / "runnel.toml").write_text(text)
    with pytest.raises(Mistake) as caught:
        load_settings(project)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("PROJECT_SETTING")]
    assert lines == [
        "PROJECT_SETTING: there is no setting `project.owener`",
        "PROJECT_SETTING: there is no setting `lake.catalogue`; close: `catalog`",
        "PROJECT_SETTING: there is no setting `[services]`; close: `service`",
        "PROJECT_SETTING: `service.port` is not a port",
        "PROJECT_SETTING: `service.query_timeout` is not a duration",
    ]


@pytest.mark.parametrize("name", ["a*b", "what?", "[x]", "a#b", "50%20"])
def test_a_folder_whose_name_means_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "runnel.toml").write_text('[project]\nname = "shop"\n')
    with pytest.raises(Mistake, match="PROJECT_PATH"):
        load_settings(tmp_path / name)


def test_an_environment_without_a_file_names_the_nearest(project: Path) -> None:
    (project / "runnel.prod.toml").write_text("")
    with pytest.raises(Mistake, match="close: `prod`"):
        load_settings(project, env="prd")


def test_the_project_is_found_from_below(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (project / "a" / "b").mkdir(parents=True)
    assert find_root(project / "a" / "b") == project
    with pytest.raises(Mistake, match=r"no runnel\.toml"):
        find_root(tmp_path_factory.mktemp("elsewhere"))


def test_where_work_is_done(project: Path) -> None:
    settings = load_settings(project)
    assert (settings.run_on, settings.executors_from_bytes, settings.shared_folders) == ("auto", 256 << 20, ())
    assert settings.split_bytes == 128 << 20
    spark = 'run_on = "executors"\nexecutors_from = "1 GB"\nsplit_size = "64 KiB"\nshared = ["/mnt/lake", "in"]\n'
    (project / "runnel.toml").write_text(f'[project]\nname = "shop"\n[spark]\n{spark}')
    settings = load_settings(project)
    assert (settings.run_on, settings.executors_from_bytes, settings.split_bytes) == ("executors", 10**9, 1 << 16)
    assert settings.shared_folders == ("/mnt/lake", f"{project}/in")
    environ = {"RUNNEL__SPARK__SHARED": "/a, /b", "RUNNEL__SPARK__RUN_ON": "process"}
    assert load_settings(project, environ=environ).shared_folders == ("/a", "/b")


WORK_MISTAKES = {
    "an unknown place": ('run_on = "executor"', "`spark.run_on` can't be 'executor'; close: `executors`"),
    "no size": ('executors_from = "much"', "`spark.executors_from` is not a size"),
    "no splits": ('split_size = "0 B"', "`spark.split_size` can't be 0"),
    "no list": ('shared = "/mnt"', "`spark.shared` must be a list, not text"),
    "no folder": ("shared = [1]", "`spark.shared` must be a list of folders"),
}


@pytest.mark.parametrize(("line", "what"), WORK_MISTAKES.values(), ids=WORK_MISTAKES)
def test_mistakes_in_where_work_is_done(project: Path, line: str, what: str) -> None:
    (project / "runnel.toml").write_text(f'[project]\nname = "shop"\n[spark]\n{line}\n')
    with pytest.raises(Mistake) as caught:
        load_settings(project)
    assert caught.value.what == what

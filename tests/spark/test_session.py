import signal
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from runnel.errors import Mistake
from runnel.spark.catalog_conf import CatalogSettings
from runnel.spark.doctor import diagnose_spark
from runnel.spark.session import SparkSettings, create_slot_session, start_spark
from tests.cluster.session import uses_cluster
from tests.spark.program_runner import child, gone, line_from, outcome

pytestmark = pytest.mark.spark


def test_catalog_round_trip(spark, catalog, tmp_path):
    (tmp_path / "lake").mkdir(exist_ok=True)
    slot = create_slot_session(spark, CatalogSettings("main", catalog, str(tmp_path / "ware house")))
    slot.sql("create namespace ods")
    slot.sql("create table ods.t as select id, cast(id as string) s from range(5)")
    slot.sql("insert into main.ods.t values (5, null)")
    assert [tuple(row) for row in slot.sql("select * from ods.t order by id").collect()] == [
        *((n, str(n)) for n in range(5)),
        (5, None),
    ]


def test_slots_stay_apart(spark, tmp_path):
    database = f"sqlite:///{tmp_path}/catalog.db"
    slots = [create_slot_session(spark, CatalogSettings(f"run_a_{n}", database, str(tmp_path / "w"))) for n in (1, 2)]
    for number, slot in enumerate(slots):
        slot.sql("create namespace ods")
        slot.sql(f"create table ods.t as select {number} as n")
    assert [slot.sql("select n from ods.t").first()[0] for slot in slots] == [0, 1]


def test_settings_of_the_session(spark):
    conf = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")}
    assert conf == {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
    assert spark.sparkContext.uiWebUrl is None


def test_only_loopback_listens(spark):
    psutil = pytest.importorskip("psutil")
    jvm = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
    listening = {found.laddr.ip for found in jvm.net_connections("inet") if found.status == psutil.CONN_LISTEN}
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


on_local_master = pytest.mark.skipif(uses_cluster(), reason="on a cluster the user's settings have the secret")
CLIENTS = {"another user of the machine": ("false", False), "who has the driver's secret": ("true", True)}


@on_local_master
@pytest.mark.parametrize(("authenticate", "is_admitted"), CLIENTS.values(), ids=CLIENTS)
def test_the_driver_answers_only_who_has_its_secret(spark, authenticate, is_admitted):
    """The second client runs in the driver's process, whose memory alone has the secret: as a control, it gets in."""
    assert connects_to_driver(spark, authenticate) is is_admitted


def connects_to_driver(spark, authenticate):
    """Ask the driver for its heartbeat endpoint over its port, as an executor does, and return whether it answers."""
    jvm, address = spark._jvm, spark._jvm.org.apache.spark.SparkEnv.get().rpcEnv().address()
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.network.timeout", "20s")
    conf.set("spark.authenticate", authenticate).set("spark.master", "local")
    secret_file = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()  # Scala's default
    security = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), secret_file)
    client = jvm.org.apache.spark.rpc.RpcEnv.create("client", "127.0.0.1", 0, conf, security, True)
    try:
        return client.setupEndpointRef(address, "HeartbeatReceiver").name() == "HeartbeatReceiver"
    except Py4JJavaError:
        return False
    finally:
        client.shutdown()


@on_local_master
def test_the_secret_of_the_driver_is_in_no_setting(spark):
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.authenticate"] == "true"
    assert "spark.authenticate.secret" not in settings
    security = spark._jvm.org.apache.spark.SparkEnv.get().securityManager()
    assert len(security.getSecretKey()) >= 32
    assert security.getSecretKey() not in str(settings)
    command_line = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/cmdline")
    assert not command_line.exists() or security.getSecretKey() not in command_line.read_text()


def test_python_workers_are_this_python(spark):
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).first()
    assert Path(found).resolve() == Path(sys.executable).resolve()


def test_other_settings_need_another_process(spark):
    with pytest.raises(Mistake) as caught:
        start_spark(SparkSettings(master="local[1]"))
    assert caught.value.code == "SPARK_RUNNING"


def test_doctor_knows(spark):
    found = {fact.name: fact for fact in diagnose_spark()}
    assert [found[name].state for name in ("pyspark", "java", "jars")] == ["ok"] * 3
    assert all(fact.fix for fact in found.values() if fact.state != "ok")


@pytest.mark.crash
def test_killed_parent_leaves_no_jvm(tmp_path):
    running = child("wait", tmp_path)
    pid = int(line_from(running, "jvm"))
    running.kill()
    running.wait()
    assert gone(pid)
    running.communicate()


def test_ctrl_c_stops_the_work_and_not_the_jvm(tmp_path):
    running = child("interrupted", tmp_path, RUNNEL_CDS="ready")
    pid = int(line_from(running, "jvm"))
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out.strip()) == (130, "rows 3"), err
    assert "Traceback" not in err
    assert gone(pid)


def test_start_again_after_a_refused_start(tmp_path):
    assert outcome("again", tmp_path) == (0, "2 SPARK_START\nrows 4", "")


REFUSED = {
    "too much memory": ("memory", 3, "SPARK_START: Spark's Java process ended while it was starting: "),
    "no such master": ("master", 2, "SPARK_MASTER: 'nonsense' is not a Spark master"),
}


@pytest.mark.parametrize(("mode", "code", "told"), REFUSED.values(), ids=REFUSED)
def test_refused_start(tmp_path, mode, code, told):
    found, out, err = outcome(mode, tmp_path)
    assert (found, err) == (code, "")
    assert out.startswith(told)
    assert "\n  fix: " in out

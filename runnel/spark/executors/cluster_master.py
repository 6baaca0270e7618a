"""Reach the master of a standalone cluster, and say why it can't be reached or accepts no application."""

import re
import socket
from pathlib import Path

from runnel.errors import Unreachable

_CONNECT_SECONDS = 10.0
_REASON = re.compile(r"Application has been killed\. Reason: (.+)")


def check_master(master: str) -> None:
    """Raise if no master answers at the address, or addresses, of a standalone cluster; other masters are not tried."""
    failures = []
    for address in master.removeprefix("spark://").split(",") if master.startswith("spark://") else ():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port or 7077)), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
        else:
            return
    if failures:
        what = f"no Spark master answers at {'; '.join(failures)}"
        fix = "start the master, or correct spark.master; `--set spark.master=local[*]` computes on this machine"
        raise Unreachable("SPARK_MASTER_DOWN", what, at=master, fix=fix)


def describe_refusal(master: str, message: str, log: Path) -> Unreachable:
    """Return the error for a master that accepted no application: with its own reason, which only the log has."""
    reasons = _REASON.findall(log.read_text(errors="replace")) if log.exists() else []
    reason = str(reasons[-1]) if reasons else message.splitlines()[0][:300]
    fix = (
        "check that spark.authenticate.secret is that of the cluster (or that neither has one), and that the cluster "
        "runs the Spark version of this installation; the log has more"
    )
    what = f"{master} did not accept this application: {reason}"
    return Unreachable("SPARK_MASTER_REFUSED", what, at=str(log), fix=fix)

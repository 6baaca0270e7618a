"""Choose settings for a cluster: executors come and go with the work, and connections are protected.

Pure. Everything can be overridden in `[spark] conf`.
"""

from collections.abc import Mapping


def build_cluster_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session on a cluster, given those of the user.

    Executors that have nothing to do are given back, so that several workers of Runnel share a cluster. If the user
    gives a secret, everybody who connects must know it, and data is encrypted on the network and on local disks. The
    driver of a cluster on this machine is reached on this machine only.

    >>> build_cluster_conf("spark://10.0.0.7:7077", {"spark.executor.instances": "4"})
    {}
    """
    return {**_build_allocation_conf(conf), **_build_protection_conf(conf), **_build_address_conf(master)}


def _build_address_conf(master: str) -> dict[str, str]:
    is_here = master.startswith(("spark://127.0.0.1:", "spark://localhost:"))
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_here else {}


def _build_allocation_conf(conf: Mapping[str, str]) -> dict[str, str]:
    if "spark.executor.instances" in conf or conf.get("spark.dynamicAllocation.enabled", "true").lower() != "true":
        return {}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "120s",
        "spark.dynamicAllocation.executorIdleTimeout": "30s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "120s",
    }


def _build_protection_conf(conf: Mapping[str, str]) -> dict[str, str]:
    if "spark.authenticate.secret" not in conf and conf.get("spark.authenticate", "false").lower() != "true":
        return {}
    return {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }

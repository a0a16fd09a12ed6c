"""A candidate of the synchronous client's leader election; prints a line when it leads."""

from __future__ import annotations

import sys
import time

from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock


def lead() -> None:
    print("leading", flush=True)
    time.sleep(3600)


kubeconfig, name = sys.argv[1:]
config.load_kube_config(kubeconfig)
settings = electionconfig.Config(
    ConfigMapLock("sync-lock", "default", name),
    lease_duration=3,
    renew_deadline=2,
    retry_period=1,
    onstarted_leading=lead,
    onstopped_leading=None,
)
leaderelection.LeaderElection(settings).run()

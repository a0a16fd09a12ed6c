"""The controller's view of the cluster: jobs, Scales and pods, fed by watches and by own writes.

The watches are late by nature and the answers to own writes are not, so both go through one rule:
of two states of an object the one with the higher resourceVersion is the newer, and an object that
was seen deleted never comes back under its uid. So a late event cannot undo what an own write has
taught, and the answer to an own write cannot bring back what a watch has already seen go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from penstock.base.shards import ALL_JOBS, Share
from penstock.controller.reconcile.model.observed import Job, Pod, Scale
from penstock.controller.reconcile.model.parsing import read_job, read_pod, read_scale, read_spec
from penstock.crds import labels
from penstock.crds.elasticjob import ElasticJobSpec

JobKey = tuple[str, str]
Json = dict[str, Any]

_TOMBSTONES: Final = 20_000


class Store:
    """Objects by the job that they belong to.

    Args:
        changed: called with the key of a job about which something has changed.
        written: called with the key of a job that has another state, own writes included, or none.
        share: whose objects are kept; of others nothing is.
    """

    def __init__(
        self,
        changed: Callable[[JobKey], None],
        written: Callable[[JobKey], None] = lambda _: None,
        share: Share = ALL_JOBS,
    ) -> None:
        self._changed = changed
        self._share = share
        self._written = written
        self._jobs: dict[JobKey, Job] = {}
        self._scales: dict[JobKey, dict[str, Scale]] = {}
        self._pods: dict[JobKey, dict[str, Pod]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._pods_position = 0

    # Reading

    def job(self, key: JobKey) -> Job | None:
        """The job of that namespace and name."""
        return self._jobs.get(key)

    def jobs(self) -> Collection[Job]:
        """All jobs."""
        return self._jobs.values()

    def scales(self, key: JobKey) -> tuple[Scale, ...]:
        """The Scales that name a job, whatever its uid."""
        return tuple(self._scales.get(key, {}).values())

    def pods(self, key: JobKey, job_uid: str) -> tuple[Pod, ...]:
        """The pods of a job of that name and uid."""
        return tuple(pod for pod in self._pods.get(key, {}).values() if pod.job_uid == job_uid)

    def job_keys(self) -> set[JobKey]:
        """All keys that have a job or a Scale."""
        return self._jobs.keys() | self._scales.keys()

    def counts(self) -> dict[str, int]:
        """How many objects of each kind are held."""
        return {
            "jobs": len(self._jobs),
            "scales": sum(len(scales) for scales in self._scales.values()),
            "pods": sum(len(pods) for pods in self._pods.values()),
        }

    # Jobs

    def put_job(self, raw: Json, *, own: bool = False) -> None:
        """A job as a watch, a list or the answer to an own write shows it."""
        metadata = raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if not self._share.owns(*key):
            return
        known = self._jobs.get(key)
        if metadata["uid"] in self._deleted or (known and not _newer(metadata, known)):
            return
        self._jobs[key] = read_job(raw, *self._spec(raw, known))
        if known is not None and known.uid != metadata["uid"]:
            self._bury(known.uid)
        self._written(key)
        if not own:
            self._changed(key)

    def _spec(self, raw: Json, known: Job | None) -> tuple[ElasticJobSpec | None, str]:
        """The spec, read once for each generation."""
        metadata = raw["metadata"]
        if (
            known is not None
            and known.uid == metadata["uid"]
            and known.generation == metadata.get("generation", 1)
        ):
            return known.spec, known.spec_error
        return read_spec(raw.get("spec"))

    def drop_job(self, key: JobKey, uid: str) -> None:
        """A job was deleted."""
        if not self._share.owns(*key):
            return
        self._bury(uid)
        known = self._jobs.get(key)
        if known is not None and known.uid == uid:
            del self._jobs[key]
            self._written(key)
            self._changed(key)

    # Scales

    def put_scale(self, raw: Json, *, own: bool = False) -> None:
        """A Scale as a watch, a list or the answer to an own write shows it."""
        metadata = raw["metadata"]
        job_name = ((raw.get("spec") or {}).get("jobRef") or {}).get("name", "")
        key = (metadata["namespace"], job_name)
        if not self._share.owns(*key):
            return
        known = self._scales.get(key, {}).get(metadata["name"])
        if metadata["uid"] in self._deleted or (known and not _newer(metadata, known)):
            return
        self._scales.setdefault(key, {})[metadata["name"]] = read_scale(raw)
        if not own:
            self._changed(key)

    def drop_scale(self, key: JobKey, name: str, uid: str) -> None:
        """A Scale was deleted."""
        if not self._share.owns(*key):
            return
        self._bury(uid)
        scales = self._scales.get(key, {})
        if name in scales and scales[name].uid == uid:
            del scales[name]
            if not scales:
                del self._scales[key]
            self._changed(key)

    def replace(
        self, jobs: Iterable[Json], jobs_version: int, scales: Iterable[Json], scales_version: int
    ) -> None:
        """Complete lists: take what is newer, and drop what they no longer have.

        An object that is newer than the list it is missing from was created after the list.
        """
        seen: set[str] = set()
        for raw in jobs:
            seen.add(raw["metadata"]["uid"])
            self.put_job(raw)
        for raw in scales:
            seen.add(raw["metadata"]["uid"])
            self.put_scale(raw)
        for key, job in list(self._jobs.items()):
            if job.uid not in seen and int(job.resource_version) <= jobs_version:
                self.drop_job(key, job.uid)
        for key, named in list(self._scales.items()):
            for name, scale in list(named.items()):
                if scale.uid not in seen and int(scale.resource_version) <= scales_version:
                    self.drop_scale(key, name, scale.uid)

    # Pods

    def put_pod(self, raw: Json, *, own: bool = False) -> None:
        """A pod as the watch or the answer to an own write shows it."""
        metadata = raw["metadata"]
        key = (metadata["namespace"], (metadata.get("labels") or {}).get(labels.JOB, ""))
        if not self._share.owns(*key):
            return
        known = self._pods.get(key, {}).get(metadata["name"])
        if known is not None and known.resource_version >= int(metadata["resourceVersion"]):
            return  # most of what the watch shows first came as the answer to an own write
        pod = read_pod(raw)
        if pod is None:
            return
        if own and pod.resource_version <= self._pods_position:
            return  # the watch is past that version: it has shown the pod, or its end
        self._put_pod(key, pod, own=own)

    def _put_pod(self, key: JobKey, pod: Pod, *, own: bool = False) -> None:
        pods = self._pods.setdefault(key, {})
        known = pods.get(pod.name)
        if pod.uid in self._deleted:
            return
        if known is not None and known.resource_version >= pod.resource_version:
            return
        pods[pod.name] = pod
        if not own:
            self._changed(key)

    def watched_pod(self, kind: str, raw: Json) -> None:
        """One event of the watch of pods."""
        self._pods_position = max(
            self._pods_position, int(raw["metadata"].get("resourceVersion") or 0)
        )
        if kind == "DELETED":
            tags = raw["metadata"].get("labels") or {}
            key = (raw["metadata"]["namespace"], tags.get(labels.JOB, ""))
            self._drop_pod(key, raw["metadata"]["name"], raw["metadata"]["uid"])
        elif kind in {"ADDED", "MODIFIED"}:
            self.put_pod(raw)

    def _drop_pod(self, key: JobKey, name: str, uid: str) -> None:
        if not self._share.owns(*key):
            return
        self._bury(uid)
        pods = self._pods.get(key, {})
        if name in pods and pods[name].uid == uid:
            del pods[name]
            if not pods:
                del self._pods[key]
            self._changed(key)

    def replace_pods(self, items: Iterable[Json], version: int) -> None:
        """A complete list of pods, after which the watch goes on from its version."""
        seen: set[str] = set()
        for raw in items:
            seen.add(raw["metadata"]["uid"])
            self.put_pod(raw)
        for key, named in list(self._pods.items()):
            for name, pod in list(named.items()):
                if pod.uid not in seen and pod.resource_version <= version:
                    self._drop_pod(key, name, pod.uid)
        self._pods_position = max(self._pods_position, version)

    def _bury(self, uid: str) -> None:
        self._deleted[uid] = None
        while len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)


def _newer(metadata: Json, known: Job | Scale) -> bool:
    """Whether a state of an object, or of its successor, is newer than the known one."""
    return int(metadata["resourceVersion"]) > int(known.resource_version)

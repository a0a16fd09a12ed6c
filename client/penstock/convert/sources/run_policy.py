"""``runPolicy`` and ``restartPolicy``, which the kinds of Kubeflow's training-operator share."""

from __future__ import annotations

from typing import Final

from penstock.convert.assembly import carried
from penstock.convert.source import Json, Path, Source
from penstock.convert.template import Template

NO_GROUP: Final = (
    "no pod group unless spec.gang asks for one: workers wait for one another, and train with "
    "minReplicas of them and more"
)

DROPPED: Final = {
    "cleanPodPolicy": "pods of an ended job stay for their logs, until the job is deleted: "
    "spec.ttlSecondsAfterFinished",
    "managedBy": "no other controller is to run the job: spec.managedBy would name one",
    "schedulingPolicy.minAvailable": NO_GROUP,
    "schedulingPolicy.minResources": NO_GROUP,
    "schedulingPolicy.scheduleTimeoutSeconds": NO_GROUP,
    "schedulingPolicy.queue": "a queue is a label of the template: docs/tasks/kueue.md",
}
RESTART_POLICIES: Final = {
    "Never": "spec.failurePolicy.maxRestarts, 0 where nothing else says a number",
    "ExitCode": "every exit code but 0 is a failure, and counts against "
    "spec.failurePolicy.maxRestarts",
    "": "a failed pod is replaced, and not restarted in place: spec.failurePolicy.maxRestarts, of "
    "each rank",
}
"""By restartPolicy; the last one is for all others."""


def policy_fields(source: Source, path: Path, template: Template) -> Json:
    """Fields of ``spec`` that a run policy says; its priority class goes to the template."""
    fields = carried(
        source,
        {
            "activeDeadlineSeconds": (*path, "activeDeadlineSeconds"),
            "ttlSecondsAfterFinished": (*path, "ttlSecondsAfterFinished"),
            "suspend": (*path, "suspend"),
        },
    )
    source.drop_all(path, DROPPED)
    priority = (*path, "schedulingPolicy", "priorityClass")
    if (name := source.text(priority)) is not None:
        template.manifest["spec"].setdefault("priorityClassName", name)
        if template.manifest["spec"]["priorityClassName"] == name:
            source.keep(priority)
        else:
            source.drop(priority, "the template names another one")
    return fields

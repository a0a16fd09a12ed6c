"""``runPolicy`` and ``restartPolicy``, which the kinds of Kubeflow's training-operator share."""

from __future__ import annotations

from typing import Final

from penstock.convert.assembly import carried
from penstock.convert.gang import of_scheduling_policy
from penstock.convert.source import Json, Path, Source

DROPPED: Final = {
    "cleanPodPolicy": "pods of an ended job stay for their logs, until the job is deleted: "
    "spec.ttlSecondsAfterFinished",
    "managedBy": "no other controller is to run the job: spec.managedBy would name one",
}
RESTART_POLICIES: Final = {
    "Never": "spec.failurePolicy.maxRestarts, 0 where nothing else says a number",
    "ExitCode": "every exit code but 0 is a failure, and counts against "
    "spec.failurePolicy.maxRestarts",
    "": "a failed pod is replaced, and not restarted in place: spec.failurePolicy.maxRestarts, of "
    "each rank",
}
"""By restartPolicy; the last one is for all others."""


def policy_fields(source: Source, path: Path, template: Json) -> Json:
    """Fields of ``spec`` that a run policy says; its priority class goes to the template."""
    fields = carried(
        source,
        {
            "activeDeadlineSeconds": (*path, "activeDeadlineSeconds"),
            "ttlSecondsAfterFinished": (*path, "ttlSecondsAfterFinished"),
            "suspend": (*path, "suspend"),
        },
    )
    gang = of_scheduling_policy(source, (*path, "schedulingPolicy"))
    if gang is not None:
        fields["gang"] = gang
    source.drop_all(path, DROPPED)
    priority = (*path, "schedulingPolicy", "priorityClass")
    if (name := source.text(priority)) is not None:
        template["spec"].setdefault("priorityClassName", name)
        if template["spec"]["priorityClassName"] == name:
            source.keep(priority)
        else:
            source.drop(priority, "the template names another one")
    return fields

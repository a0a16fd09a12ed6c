"""An optional admission policy: who makes an ElasticJob must be one who may make pods.

The controller makes the pods that an ElasticJob describes, with rights of its own. So without this,
the right to create ElasticJobs in a namespace is the right to any pod in it: with any of its
service accounts and Secrets, and as privileged as its Pod Security admits. The same is true of
Deployments; where ElasticJobs are given to people who are not given pods, it may come as a
surprise.

Off unless somebody asks for it: it also refuses accounts that submit jobs for others, until they
are given the right to create pods.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.crds.admission_policy import policy_and_binding
from penstock.crds.group import ELASTICJOB_PLURAL

JOB_POLICY_NAME: Final = "penstock-job-creators"
"""The policy's name, and that of its binding."""


def job_policy() -> list[dict[str, Any]]:
    """The policy, and the binding that puts it in force for the whole cluster.

    What leaves the spec as it is goes through: labels, finalizers, a deletion; so do the status and
    the scale subresource, which changes numbers of pods and not what they are.
    """
    return policy_and_binding(
        JOB_POLICY_NAME,
        ["CREATE", "UPDATE"],
        ELASTICJOB_PLURAL,
        conditions=[
            {
                "name": "makes-or-changes-a-spec",
                "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
            }
        ],
        validations=[
            {
                "expression": "authorizer.group('').resource('pods')"
                ".namespace(request.namespace).check('create').allowed()",
                "messageExpression": "'who creates an ElasticJob or changes its spec must be"
                " allowed to create pods in namespace ' + request.namespace",
            }
        ],
    )

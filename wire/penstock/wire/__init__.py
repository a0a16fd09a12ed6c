"""The objects of the Brain's REST API, as trainer, scheduler, client and service exchange them.

They stand below the Brain and import `penstock.base` alone, so that whoever speaks the protocol,
a training container for one, carries neither the Brain nor the web framework.
"""

from __future__ import annotations

from penstock.wire.algorithms import AlgorithmPatch, AlgorithmView
from penstock.wire.base import ListResource, WireModel
from penstock.wire.cluster import (
    Allocation,
    AuditEntry,
    ClusterSnapshot,
    FragmentationView,
    Node,
    NodeView,
)
from penstock.wire.costs import CostLine, CostReport, CostsBy
from penstock.wire.forecasts import Expected, Forecast, ForecastRequest
from penstock.wire.jobs import Job, JobFinish, JobRegistration, RoleDescription, Signature
from penstock.wire.nodes import (
    AvoidedNodes,
    MeasuredNode,
    NodeOverrideBody,
    NodeRecord,
    NodeReport,
    NodeVerdict,
)
from penstock.wire.plans import (
    AlgorithmRef,
    AlgorithmRun,
    DataWorkerDemand,
    Evidence,
    Outcome,
    Override,
    Plan,
    Prediction,
    Proposal,
    ProposalLimits,
    ProposalRequest,
    RunOutcome,
    ShadowPlan,
)
from penstock.wire.problems import FieldProblem, Problem, ProblemType
from penstock.wire.profiles import (
    Configuration,
    InputDecision,
    InputView,
    ProfileBody,
    ProfileSource,
    ProfileView,
    WhatIf,
    WhatIfPoint,
    WhatIfRequest,
)
from penstock.wire.samples import (
    JobEvent,
    QueueSample,
    RankSample,
    Resolution,
    RoleUse,
    Sample,
    SampleBatch,
    SampleReceipt,
    SampleView,
)

__all__ = [
    "AlgorithmPatch",
    "AlgorithmRef",
    "AlgorithmRun",
    "AlgorithmView",
    "Allocation",
    "AuditEntry",
    "AvoidedNodes",
    "ClusterSnapshot",
    "Configuration",
    "CostLine",
    "CostReport",
    "CostsBy",
    "DataWorkerDemand",
    "Evidence",
    "Expected",
    "FieldProblem",
    "Forecast",
    "ForecastRequest",
    "FragmentationView",
    "InputDecision",
    "InputView",
    "Job",
    "JobEvent",
    "JobFinish",
    "JobRegistration",
    "ListResource",
    "MeasuredNode",
    "Node",
    "NodeOverrideBody",
    "NodeRecord",
    "NodeReport",
    "NodeVerdict",
    "NodeView",
    "Outcome",
    "Override",
    "Plan",
    "Prediction",
    "Problem",
    "ProblemType",
    "ProfileBody",
    "ProfileSource",
    "ProfileView",
    "Proposal",
    "ProposalLimits",
    "ProposalRequest",
    "QueueSample",
    "RankSample",
    "Resolution",
    "RoleDescription",
    "RoleUse",
    "RunOutcome",
    "Sample",
    "SampleBatch",
    "SampleReceipt",
    "SampleView",
    "ShadowPlan",
    "Signature",
    "WhatIf",
    "WhatIfPoint",
    "WhatIfRequest",
    "WireModel",
]

"""The API group, its version and the names of its two resources; where it lives."""

from __future__ import annotations

from typing import Final

GROUP: Final = "penstock.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "penstock.dev/v1alpha1"  # spelt out so that type checkers see a literal

ELASTICJOB_KIND: Final = "ElasticJob"
ELASTICJOB_PLURAL: Final = "elasticjobs"
SCALE_KIND: Final = "Scale"
SCALE_PLURAL: Final = "scales"

SYSTEM_NAMESPACE: Final = "penstock-system"
"""Where the control plane is, its Leases and its Service, unless somebody chose otherwise."""

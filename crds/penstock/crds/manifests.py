"""The generated YAML files: what is in each.

The files in the source tree are for people and for ``kubectl apply``; programs call
`Manifest.objects`. One test, and ``penstock crds --check``, hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.base.yaml_text import Dumper
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.job_policy import job_policy
from penstock.crds.policy import trainer_policy
from penstock.crds.scale import SCALE
from penstock.crds.schema import crd

SOURCE_FOLDER: Final = Path(__file__).parents[2]
"""Folder of the committed files in a source checkout."""

_HEADER: Final = "# Generated from the models by `penstock crds --write`; do not edit.\n"


@dataclass(frozen=True)
class Manifest:
    """One generated file: its short name, the name of the file, and what is in it."""

    name: str
    file_name: str
    objects: Callable[[], list[dict[str, Any]]]

    def render(self) -> str:
        """The file's text: the same for the same models."""
        documents = yaml.dump_all(
            self.objects(), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True
        )
        return _HEADER + documents


class _Dumper(Dumper):
    """Writes equal parts out in full: ``&`` and ``*`` are not for readers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


MANIFESTS: Final = (
    Manifest("elasticjob", "elasticjob.crd.yaml", lambda: [crd(ELASTICJOB)]),
    Manifest("scale", "scale.crd.yaml", lambda: [crd(SCALE)]),
    Manifest("policy", "trainer-policy.yaml", trainer_policy),
)
"""What every installation applies, in this order."""

OPTIONAL_MANIFESTS: Final = (Manifest("job-policy", "optional/job-policy.yaml", job_policy),)
"""What is applied where somebody asks for it. A folder of its own: many apply all that lies in one.
"""

"""Every secret that there is: where it lies, what it opens, and what shows that it is kept.

The table of `docs/operations/security.md` is made of these rows, and `test_secrets.py` finds what
has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One row."""

    name: str
    found: tuple[str, ...]
    """As `test_secrets.py` finds it: ``MODULE:CALL`` that makes it, and which pods are given it:
    those of the chart, a job's trainer, or the others of a job."""
    lies: str
    opens: str
    life: str
    """How long it is good, and what makes another."""
    shown: str
    """``FILE::TEST`` below ``tests/`` that attacks it."""


SECRETS: Final = (
    Secret(
        name="token of a job",
        found=("trainer:secret", "training:secret"),
        lies="Secret `JOB-token` in the job's namespace; environment of the job's pods",
        opens="that job: its trainer, its data, code in its data workers",
        life="the job's; it is derived from the key below",
        shown="security/test_sniffing.py::test_neither_the_token_nor_a_key_goes_over_the_network",
    ),
    Secret(
        name="token of a share group",
        found=(),
        lies="Secrets `JOB-token` of its members; environment of their trainers, workers and data "
        "workers",
        opens="of each member: reports of data workers to its trainer, its data, code in its data "
        "workers",
        life="the namespace's; it is derived from the key below and the group's name",
        shown="security/test_share_group.py"
        "::test_the_groups_token_opens_one_call_of_a_trainer_and_no_other",
    ),
    Secret(
        name="key of the jobs' tokens",
        found=("controller/penstock/controller/execution/tokens.py:token_bytes",),
        lies="Secret `penstock-job-key` beside the controller",
        opens="every job's token, and every share group's",
        life="until somebody deletes it: later jobs have other tokens",
        shown="controller/test_tokens.py::test_another_cluster_has_other_tokens",
    ),
    Secret(
        name="tokens of the three components",
        found=("chart:brain:account", "chart:controller:account", "chart:scheduler:account"),
        lies="mounted into their pods",
        opens="what [their roles](#who-may-do-what) say",
        life="an hour or as the cluster has it; read anew from the file",
        shown="charts/test_tokens.py::test_components_outlive_their_tokens",
    ),
    Secret(
        name="the scheduler's token for the Brain",
        found=("chart:scheduler:token:penstock-brain",),
        lies="mounted into its pod",
        opens="the Brain alone, by its audience",
        life="an hour; read anew from the file",
        shown="charts/test_tokens.py::test_components_outlive_their_tokens",
    ),
    Secret(
        name="the trainer's token for the cluster",
        found=("trainer:token:",),
        lies="mounted into the trainer's pod, not into those of the training",
        opens="what the role of `JOB-trainer` says, less what the admission policies deny",
        life="an hour; read anew from the file",
        shown="security/test_deputy.py::test_an_override_needs_what_the_same_change_of_scales_needs",
    ),
    Secret(
        name="the trainer's token for the Brain",
        found=("trainer:token:penstock-brain",),
        lies="mounted into the trainer's pod",
        opens="its own job at the Brain alone, by its audience",
        life="an hour; read anew from the file",
        shown="security/test_deputy.py::test_nobody_registers_the_uid_of_somebody_elses_job",
    ),
    Secret(
        name="a person's token for a Brain that was found",
        found=(),
        lies="memory of the command",
        opens="the Brain alone, by its audience",
        life="an hour, or until the command ends",
        shown="client/test_found_brain.py::test_an_administrator_goes_to_the_charts_and_not_to_a_tenants",
    ),
    Secret(
        name="API tokens of the Brain",
        found=("api/penstock/api/auth/tokens.py:token_urlsafe",),
        lies="with whoever was given one; the Brain's configuration has a SHA-256 of it",
        opens="what the configuration says of it",
        life="until its line is taken out",
        shown="api/test_access.py::test_only_hashes_of_tokens_are_kept_and_they_can_be_replaced",
    ),
    Secret(
        name="address of the database, with its password",
        found=("chart:brain:secret",),
        lies="a Secret of yours, or `penstock-brain-database`; environment of the Brain's pod",
        opens="the history of all jobs",
        life="yours; the Brain reads it at its start",
        shown="security/test_secrets.py::test_a_database_that_is_away_costs_no_password",
    ),
    Secret(
        name="the key of the Brain's certificate",
        found=("chart:brain:tls.key",),
        lies="a Secret of yours or cert-manager's, or `penstock-brain-tls`; mounted into its pod",
        opens="being taken for the Brain, by who is on the way to it",
        life="ten years, or as cert-manager and you have it; a new one is taken over at once",
        shown="client/test_found_brain.py::test_one_with_another_certificate_hears_nothing",
    ),
    Secret(
        name="token of `penstock run`",
        found=(
            "runtime/penstock/data/standalone.py:token_hex",
            "runtime/penstock/data/share_keeper.py:token_hex",
        ),
        lies="environment of what the command starts; with `--share` also `keeper.json` in the "
        "group's folder, which only its owner may read (0600)",
        opens="its data plane, on loopback, and code in its data workers",
        life="the command's; with `--share` its group's",
        shown="security/test_sniffing.py::test_the_token_itself_opens_nothing",
    ),
    Secret(
        name="token of `penstock up` for its Brain",
        found=("local/penstock/local/control_plane/home.py:token_urlsafe",),
        lies="file `brain-token` of its folder, which only its owner may read (0600)",
        opens="that Brain, for its planner and for the command line of who started it",
        life="until the next start",
        shown="e2e/test_up_and_down.py::test_an_external_cluster_gets_controller_and_brain",
    ),
    Secret(
        name="keys of the embedded cluster",
        found=(
            "cluster/penstock_cluster/registry/tokens.py:token_urlsafe",
            "cluster/penstock_cluster/apiserver/certificates.py:generate_private_key",
        ),
        lies="files of its folder that only their owner may read (0600), and its kubeconfig",
        opens="that cluster, whose API server listens on loopback",
        life="as long as its folder",
        shown="security/test_secrets.py::test_the_embedded_clusters_keys_are_its_owners_alone",
    ),
)

NO_SECRETS: Final = {
    "runtime/penstock/job/atomic_file.py": "the name of a file",
    "runtime/penstock/job/folder_mark.py": "names of files",
    "runtime/penstock/trainer/service.py": "which life of a trainer it is",
    "runtime/penstock/trainer/ps/session.py": "which life of a worker it is",
    "runtime/penstock/trainer/group/step_barrier.py": "nonces, said in clear",
    "runtime/penstock/trainer/elastic.py": "which life of a worker it is",
    "runtime/penstock/trainer/processes.py": "the name of a socket; Linux says whose a datagram is",
    "runtime/penstock/trainer/launch/launched_program.py": "which program and which life it is",
    "runtime/penstock/trainer/launch/torchrun_rendezvous.py": "which life of an agent it is",
    "runtime/penstock/trainer/agent.py": "which life of an agent it is",
    "runtime/penstock/trainer/shards.py": "who holds a shard",
    "runtime/penstock/parameter_server/server/process.py": "which life of a server it is",
    "runtime/penstock/data/call_proof.py": "nonces, said in clear",
    "runtime/penstock/data/consuming/batch_stream.py": "which pipeline it is",
    "runtime/penstock/data/consuming/consumer.py": "names of a consumer and of its socket",
    "runtime/penstock/data/cache/launching.py": "the name of a socket; the cache looks who calls",
    "runtime/penstock/data/tensorflow/shard_dataset.py": "which process it is",
    "runtime/penstock/data/torch_loading/lengths.py": "the name of a file",
    "runtime/penstock/data/serving/worker.py": "the name of a data worker",
    "runtime/penstock/data/transport/handshake.py": "nonces, said in clear",
    "api/penstock/api/cluster.py": "the name of a Scale; another only has to be hard to foresee",
    "cluster/penstock_cluster/events.py": "the name of an Event",
}
"""Random all the same: no harm where others know it."""


def markdown_table() -> str:
    """The rows, as the documentation has them."""
    lines = ["| secret | lies in | opens | good for |", "| --- | --- | --- | --- |"]
    lines += [f"| {each.name} | {each.lies} | {each.opens} | {each.life} |" for each in SECRETS]
    return "\n".join(lines) + "\n"

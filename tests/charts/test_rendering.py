"""The chart, rendered by Helm for many sets of values, is sound: for Kubernetes and for our own
commands."""

from __future__ import annotations

import base64
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import typer
import yaml
from cryptography import x509

from penstock.api.commands import brain
from penstock.brain.configuration import load
from penstock.controller.commands import controller
from penstock.crds.job_policy import job_policy
from penstock.crds.manifests import MANIFESTS
from penstock.scheduler.commands import scheduler
from tests.charts.rendering import CHART, SYSTEM, VALUE_SETS, Json, named, of_kind, render

OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
OPERATORS_KINDS = {"Certificate", "ServiceMonitor", "PrometheusRule"}

each_set = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())


def deployments(objects: list[Json]) -> dict[str, Json]:
    return of_kind(objects, "Deployment")


def pod_of(deployment: Json) -> Json:
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


@each_set
def test_lint_finds_nothing(values: Json) -> None:
    report = helm.lint(CHART, values, strict=True, namespace=SYSTEM, kube_version="v1.30.0")
    assert report["total_charts_linted"] == 1
    assert report["errors"] in ([], None)
    assert [one for one in report["messages"] if one["severity"] > 1] == []


_definitions = cache(kubernetes_validate.utils.schema_contents)


@pytest.fixture
def _reads_schemas_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validator reads all definitions anew for each object."""
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", _definitions)


@pytest.mark.usefixtures("_reads_schemas_once")
@each_set
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_accepts_every_object(values: Json, version: str) -> None:
    for document in render(values):
        if document["kind"] not in OPERATORS_KINDS:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_would_object() -> None:
    document = named(render({}), "Deployment", "penstock-brain")
    document["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(document, NEWEST, strict=True)


@each_set
def test_no_object_is_there_twice_or_in_another_namespace(values: Json) -> None:
    objects = render(values, "elsewhere")
    keys = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(keys) == len(set(keys))
    places = {one["metadata"].get("namespace") for one in objects}
    assert places == {"elsewhere", None}
    assert "penstock-system" not in json.dumps(objects)


@each_set
def test_pods_meet_the_restricted_standard(values: Json) -> None:
    found = deployments(render(values))
    assert found
    for deployment in found.values():
        pod = pod_of(deployment)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
        kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@each_set
def test_what_is_referred_to_is_there(values: Json) -> None:
    objects = render(values)
    workloads = deployments(objects) | of_kind(objects, "DaemonSet")
    pods = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in workloads.items()}
    for name, deployment in deployments(objects).items():
        pod, [container] = pod_of(deployment), pod_of(deployment)["containers"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= pods[name].items()
        assert pod["serviceAccountName"] in of_kind(objects, "ServiceAccount")
        port = container["ports"][0]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]
        service = named(objects, "Service", name)
        opened = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert opened == {one["targetPort"]: one["port"] for one in service["spec"]["ports"]}
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                assert volume["configMap"]["name"] in of_kind(objects, "ConfigMap")
            if secret := volume.get("secret", {}).get("secretName"):
                keys = {item["key"] for item in volume["secret"]["items"]}
                # One's own, cert-manager's, or a rendered one.
                certificate = of_kind(objects, "Certificate").get("penstock-brain", {})
                makes = certificate.get("spec", {}).get("secretName")
                made = of_kind(objects, "Secret").get(secret, {}).get("data", {})
                assert secret in ("mine", makes) or keys <= set(made)
            if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
                assert claim == "mine" or claim in of_kind(objects, "PersistentVolumeClaim")
        for variable in container.get("env", []):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                made = of_kind(objects, "Secret").get(secret["name"])
                # A rendered Secret that is there.
                assert secret["name"] == "pg" or secret["key"] in made["stringData"]  # type: ignore[index]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"):
        for name, one in of_kind(objects, kind).items():
            selector = one["spec"].get("podSelector") or one["spec"]["selector"]
            assert selector.get("matchLabels", selector).items() <= pods[name].items()
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for one in of_kind(objects, kind).values():
            assert one["roleRef"]["name"] in of_kind(objects, one["roleRef"]["kind"])
            for subject in one["subjects"]:
                if one["metadata"]["name"] == "penstock-user" and kind == "RoleBinding":
                    continue  # people, and accounts of theirs
                if subject["kind"] == "Group":
                    assert one["roleRef"]["name"] == "penstock-brain-ca"  # which is public
                    continue
                account = named(objects, "ServiceAccount", subject["name"])
                assert account["metadata"]["namespace"] == subject["namespace"]


@each_set
def test_every_component_has_everything(values: Json) -> None:
    objects = render(values)
    expected = {"penstock-controller", "penstock-brain"}
    if values.get("scheduler", {}).get("enabled", True):
        expected.add("penstock-scheduler")
    has = {
        "PodDisruptionBudget": values.get("podDisruptionBudget", {}).get("enabled", True),
        "NetworkPolicy": values.get("networkPolicy", {}).get("enabled", True),
        "ServiceMonitor": values.get("monitoring", {}).get("serviceMonitor", {}).get("enabled"),
    }
    for kind in ("Deployment", "ServiceAccount", "Service", "ClusterRoleBinding", *has):
        names = set(of_kind(objects, kind)) - {"penstock-user"}  # as whom people call the Brain
        names -= {"penstock-cache"}  # of each node: see test_cache
        assert names == (expected if has.get(kind, True) else set()), kind


def test_who_makes_jobs_is_asked_for_pods_on_request_alone() -> None:
    """Values that an earlier release has left, and ``--reuse-values`` takes over, do not ask."""
    for values in ({}, {"admission": None}, {"admission": {}}):
        assert "penstock-job-creators" not in of_kind(render(values), "ValidatingAdmissionPolicy")
    objects = render({"admission": {"requirePodCreation": True}})
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        made = dict(named(objects, kind, "penstock-job-creators"))
        labels = made["metadata"].pop("labels")
        assert labels["app.kubernetes.io/part-of"] == "penstock"
        assert made in job_policy()


@pytest.mark.parametrize(
    ("scheduler", "group"),
    [("SchedulerPlugins", "scheduling.x-k8s.io"), ("Volcano", "scheduling.volcano.sh")],
)
def test_the_controller_may_make_groups_where_it_is_to(scheduler: str, group: str) -> None:
    objects = render({"controller": {"gangScheduler": scheduler}})
    [rule] = named(objects, "ClusterRole", "penstock-controller-gangs")["rules"]
    assert rule == {"apiGroups": [group], "resources": ["podgroups"], "verbs": ["get", "create"]}
    bound = named(objects, "ClusterRoleBinding", "penstock-controller-gangs")
    assert [one["name"] for one in bound["subjects"]] == ["penstock-controller"]
    command = pod_of(deployments(objects)["penstock-controller"])["containers"][0]["command"]
    assert f"--gang-scheduler={scheduler}" in command
    for values in ({}, {"controller": {"gangScheduler": "Kueue"}}):
        assert "penstock-controller-gangs" not in of_kind(render(values), "ClusterRole")


def test_the_controller_may_run_train_jobs_where_it_is_to() -> None:
    objects = render({"controller": {"trainJobsManagedBy": "penstock.dev/controller"}})
    rules = named(objects, "ClusterRole", "penstock-controller-train-jobs")["rules"]
    may = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert may == {
        ("trainjobs", "list"),
        ("trainjobs", "watch"),
        ("trainjobs/status", "patch"),
        ("trainingruntimes", "get"),
        ("clustertrainingruntimes", "get"),
        ("elasticjobs", "create"),
        ("elasticjobs", "patch"),
    }
    command = pod_of(deployments(objects)["penstock-controller"])["containers"][0]["command"]
    assert "--train-jobs-managed-by=penstock.dev/controller" in command
    for values in ({}, {"controller": {"trainJobsManagedBy": ""}}):
        assert "penstock-controller-train-jobs" not in of_kind(render(values), "ClusterRole")


@each_set
def test_our_commands_take_their_arguments(values: Json) -> None:
    commands = {"brain": brain, "controller": _app(controller), "scheduler": _app(scheduler)}
    for deployment in deployments(render(values)).values():
        program, name, *arguments = pod_of(deployment)["containers"][0]["command"]
        assert program == "penstock"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context = typer.main.get_command(commands[name]).make_context(name, arguments)
        assert context.params["host"] == values.get("listenAddress", "0.0.0.0")


def _app(command: Any) -> typer.Typer:
    app = typer.Typer()
    app.command()(command)
    return app


@each_set
def test_the_brain_takes_its_configuration(values: Json, tmp_path: Path) -> None:
    path = tmp_path / "brain.yaml"
    path.write_text(named(render(values), "ConfigMap", "penstock-brain")["data"]["brain.yaml"])
    settings = load(path)
    wanted = values.get("brain", {}).get("config", {})
    assert settings.model_dump(mode="json", exclude_unset=True) == wanted


def test_crds_are_the_committed_ones_and_stay_unless_asked() -> None:
    kept, not_kept = render({}), render({"crds": {"keep": False}})
    for manifest in MANIFESTS:
        for document in manifest.objects():
            kind, name = document["kind"], document["metadata"]["name"]
            found = named(kept, kind, name)
            is_crd = kind == "CustomResourceDefinition"
            annotations = found["metadata"].pop("annotations", {})
            assert annotations == ({"helm.sh/resource-policy": "keep"} if is_crd else {})
            assert "annotations" not in named(not_kept, kind, name)["metadata"]
            found["metadata"].pop("labels")
            assert found == document
    assert of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition") == {}


def test_the_history_stays_unless_asked() -> None:
    def annotations(values: Json) -> Json | None:
        claim = named(render(values), "PersistentVolumeClaim", "penstock-brain")
        found: Json | None = claim["metadata"].get("annotations")
        return found

    assert annotations({}) == {"helm.sh/resource-policy": "keep"}
    assert annotations({"brain": {"database": {"sqlite": {"keep": False}}}}) is None


def test_images_are_named_by_registry_tag_and_digest() -> None:
    def images(values: Json) -> set[str]:
        found = deployments(render(values)).values()
        return {pod_of(one)["containers"][0]["image"] for one in found}

    assert images({}) == {"penstock/control:0.1.0"}
    assert images({"image": {"registry": "r.example.com/x/"}}) == {
        "r.example.com/x/penstock/control:0.1.0"
    }
    digest = f"sha256:{'a' * 64}"
    values = {"image": {"control": {"digest": digest}, "runtime": {"tag": "t"}}}
    assert images(values) == {f"penstock/control@{digest}"}
    command = pod_of(deployments(render(values))["penstock-controller"])["containers"][0]["command"]
    assert "--trainer-image=penstock/runtime:t" in command


def test_the_password_of_the_database_is_in_a_secret_alone() -> None:
    objects = render(VALUE_SETS["postgresql-from-values"])
    assert named(objects, "Secret", "penstock-brain-database")["stringData"] == {
        "url": "postgresql+asyncpg://me:pass#1@db/penstock"
    }
    others = [one for one in objects if one["kind"] != "Secret"]
    assert "pass#1" not in json.dumps(others)
    ports = [
        port["port"]
        for rule in named(objects, "NetworkPolicy", "penstock-brain")["spec"]["egress"]
        for port in rule["ports"]
    ]
    assert 5432 in ports


def test_sqlite_is_opened_by_one_process_at_a_time() -> None:
    default = deployments(render({}))["penstock-brain"]["spec"]
    assert (default["replicas"], default["strategy"]) == (1, {"type": "Recreate"})
    several = deployments(render(VALUE_SETS["postgresql-from-a-secret"]))["penstock-brain"]["spec"]
    assert (several["replicas"], several.get("strategy")) == (3, None)


def test_the_rule_holds_all_alerts_and_the_monitors_find_the_port() -> None:
    objects = render(VALUE_SETS["monitored"])
    rule = named(objects, "PrometheusRule", "penstock")
    assert rule["metadata"]["labels"]["release"] == "prom"
    groups = [
        group
        for name in ("controller", "brain", "scheduler")
        for group in yaml.safe_load((CHART / "alerts" / f"{name}.yaml").read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == groups
    without = named(render(VALUE_SETS["small"]), "PrometheusRule", "penstock")["spec"]["groups"]
    assert [group["name"] for group in without] == ["penstock-controller", "penstock-brain"]
    for name, monitor in of_kind(objects, "ServiceMonitor").items():
        [endpoint] = monitor["spec"]["endpoints"]
        service = named(objects, "Service", name)
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        selector = monitor["spec"]["selector"]["matchLabels"]
        assert selector.items() <= service["metadata"]["labels"].items()
        assert (endpoint["path"], endpoint["honorLabels"]) == ("/metrics", True)


def test_every_dashboard_is_in_a_config_map() -> None:
    objects = render(VALUE_SETS["monitored"])
    shown = {
        key: text
        for one in of_kind(objects, "ConfigMap").values()
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
        for key, text in one["data"].items()
    }
    committed = {
        f"penstock-{path.name}": path.read_text() for path in (CHART / "dashboards").iterdir()
    }
    assert shown == committed


def test_people_see_and_edit_jobs_by_the_clusters_own_roles() -> None:
    objects = render({})
    prefix = "rbac.authorization.k8s.io/aggregate-to"
    viewer = named(objects, "ClusterRole", "penstock-viewer")
    editor = named(objects, "ClusterRole", "penstock-editor")
    assert viewer["metadata"]["labels"][f"{prefix}-view"] == "true"
    assert editor["metadata"]["labels"][f"{prefix}-edit"] == "true"
    verbs = {verb for rule in viewer["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    resources = {name for rule in editor["rules"] for name in rule["resources"]}
    assert resources == {"elasticjobs", "elasticjobs/scale", "scales"}
    alone = render(VALUE_SETS["small"])
    for name in ("penstock-viewer", "penstock-editor"):
        labels = named(alone, "ClusterRole", name)["metadata"]["labels"]
        assert not [label for label in labels if label.startswith(prefix)]


@pytest.mark.usefixtures("_reads_schemas_once")
def test_a_name_of_digits_stays_a_name() -> None:
    values: Json = {
        "brain": {
            "database": {"sqlite": {"existingClaim": "123"}},
            "priorityClassName": "true",
        },
        "image": {"pullSecrets": ["1e3"]},
    }
    for document in [
        *render(values, "123"),
        *render({"brain": {"database": {"sqlite": {"storageClass": "1"}}}}),
        *render(
            {
                "brain": {
                    "database": {
                        "kind": "postgresql",
                        "postgresql": {"secretName": "1", "secretKey": "2"},
                    }
                }
            }
        ),
    ]:
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_another_address_of_the_database_restarts_the_brain() -> None:
    """A process reads its environment once."""

    def pods(url: str) -> Json:
        database = {"kind": "postgresql", "postgresql": {"url": f"postgresql+asyncpg://{url}"}}
        objects = render({"brain": {"database": database}})
        metadata: Json = named(objects, "Deployment", "penstock-brain")["spec"]["template"]
        # JSON data from the chart.
        return metadata["metadata"]["annotations"]  # type: ignore[no-any-return]

    assert pods("me:one@db/penstock") == pods("me:one@db/penstock")
    assert pods("me:one@db/penstock") != pods("me:two@db/penstock")
    assert "two" not in str(pods("me:two@db/penstock"))


def test_values_of_a_release_without_tls_get_it() -> None:
    for values in ({}, {"brain": {"tls": None}}, {"brain": {"tls": {}}}):
        brain_pod = pod_of(deployments(render(values))["penstock-brain"])
        assert "--port=8443" in brain_pod["containers"][0]["command"]


def test_everything_of_one_rendering_trusts_the_same_certificate() -> None:
    objects = render({})
    secret = named(objects, "Secret", "penstock-brain-tls")["data"]
    published = named(objects, "ConfigMap", "penstock-brain-ca")["data"]["ca.crt"]
    serving = x509.load_pem_x509_certificate(base64.b64decode(secret["tls.crt"]))
    authority = x509.load_pem_x509_certificate(published.encode())
    serving.verify_directly_issued_by(authority)
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"penstock-brain.{SYSTEM}.svc" in names.get_values_for_type(x509.DNSName)
    assert b"PRIVATE KEY" in base64.b64decode(secret["tls.key"])
    restarted = {
        one["spec"]["template"]["metadata"]["annotations"].get("penstock.dev/restart-with")
        for name, one in deployments(objects).items()
        if name != "penstock-brain"  # it takes over a new one by itself
    }
    assert len(restarted) == 1
    assert None not in restarted


def test_without_tls_nothing_of_it_is_there() -> None:
    objects = render({"brain": {"tls": {"enabled": False}}})
    assert "penstock-brain-ca" not in of_kind(objects, "ConfigMap")
    assert "penstock-brain-tls" not in of_kind(objects, "Secret")
    [port] = named(objects, "Service", "penstock-brain")["spec"]["ports"]
    assert (port["name"], port["port"]) == ("http", 8477)
    for one in deployments(objects).values():
        command = " ".join(pod_of(one)["containers"][0]["command"])
        assert "https" not in command
        assert "ca-file" not in command


def test_a_hash_of_digits_stays_a_text() -> None:
    """Of this address the hash begins with 81908847, which YAML takes for a number."""
    url = "postgresql+asyncpg://me:pass33@db/penstock"
    database = {"kind": "postgresql", "postgresql": {"url": url}}
    brain_ = named(render({"brain": {"database": database}}), "Deployment", "penstock-brain")
    annotations = brain_["spec"]["template"]["metadata"]["annotations"]
    assert annotations["penstock.dev/restart-with"] == "81908847"

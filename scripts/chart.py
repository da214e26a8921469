"""Checks of the Helm chart and its renderings for `scripts.checks`: claims, and whether each holds."""

import functools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from exporter import __version__
from exporter.cli import main as program
from scripts.alerts import RULE_FILES
from scripts.project import ROOT
from scripts.renderings import CHART, KUBERNETES, VALUES, is_current, rendering, values_table

Json = dict[str, Any]
Claims = Iterator[tuple[str, bool]]
# No schema of Kubernetes covers what others define.
FOREIGN = {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
CONDITIONS = {("nodes", "get"), ("nodes", "patch"), ("nodes/status", "patch")}
DRAIN = {("pods", "list"), ("pods/eviction", "create"), ("events", "create")}
CORDON = 'all(one, one.key == "scheduled-events-exporter/pending" || one in variables.oldTaints)'
EXCLUDE = 'all(key, key == "node.kubernetes.io/exclude-from-external-load-balancers") &&'


def problems() -> Iterator[str]:
    """Yield what is wrong with the chart."""
    claims = [*_project(), *_schema(), *_access(), *_monitors(), *_windows()]
    for values in VALUES:
        name = rendering(values).stem
        claims += [(f"{name}: {text}", holds) for text, holds in (*_objects(name), *_pod(name))]
    yield from (f"deploy/helm: this does not hold: {text}" for text, holds in claims if not holds)


@functools.cache
def documents(name: str) -> list[Json]:
    """Return the objects of a rendering."""
    (path,) = (path for values in VALUES if (path := rendering(values)).stem == name)
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def only(name: str, kind: str, *, windows: bool = False) -> Json:
    """Return the only object of a kind in a rendering; ``windows`` selects those of Windows nodes."""
    named = (one for one in documents(name) if one["metadata"]["name"].endswith("-windows") is windows)
    (found,) = (one for one in named if one["kind"] == kind)
    return found


def _project() -> Claims:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = (CHART / "values.yaml").read_text()
    image = yaml.safe_load(values)["image"]
    home = f"https://github.com/{image['registry'].partition('/')[2]}/{image['repository']}"
    versions = {described["version"], described["appVersion"]}
    yield "Chart.yaml has the version of the program", versions == {__version__}
    yield "values.yaml has the image that release.yml publishes", described["home"] == home
    for source in (*RULE_FILES, *ROOT.glob("dashboards/*.json")):
        copy = CHART / "files" / source.name
        # A copy of the text of a link would be rendered as it is.
        yield f"files/{copy.name} leads to {source.name}", copy.read_bytes() == source.read_bytes()
    yield "renderings are current: run make renderings", all(map(is_current, VALUES))
    table = values_table(values)
    yield "README.md has the values: run make renderings", table in (CHART / "README.md").read_text()
    for name in yaml.safe_load(values):
        yield f"values.yaml describes {name}", f"\n| {name}" in table


def _schema() -> Claims:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    valid = jsonschema.validators.validator_for(schema)(schema).is_valid
    yield "the schema has every value", set(schema["properties"]) == set(defaults)
    yield "unknown values are refused", not valid(defaults | {"no_such_value": 1})
    for path in (CHART / "values.yaml", *VALUES):
        yield f"{path.name} keeps to the schema", valid(yaml.safe_load(path.read_text()))


def _objects(name: str) -> Claims:
    found = [one for one in documents(name) if one["kind"] not in FOREIGN]
    yield "there are objects", len(found) > 3
    for one in found:
        # Raises ValidationError with what is wrong.
        kubernetes_validate.validate(one, KUBERNETES.rpartition(".")[0], strict=True)


def _pod(name: str) -> Claims:
    daemon_set = only(name, "DaemonSet")
    template, service = daemon_set["spec"]["template"], only(name, "Service")
    pod, labels = template["spec"], template["metadata"]["labels"]
    (container,) = pod["containers"]
    selector, security = daemon_set["spec"]["selector"]["matchLabels"], pod["securityContext"]
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    yield "the pod is not root", security["runAsNonRoot"] is True and security["runAsUser"] > 0
    yield "the pod has a seccomp profile", security["seccompProfile"] == {"type": "RuntimeDefault"}
    is_closed = container["securityContext"] == closed | {"capabilities": {"drop": ["ALL"]}}
    yield "the container has no privilege", is_closed
    yield "the DaemonSet selects its pods", selector.items() <= labels.items()
    yield "the Service selects the pods", service["spec"]["selector"].items() <= selector.items()
    volumes = {volume["name"] for volume in pod["volumes"]}
    yield "every volume is mounted", {mount["name"] for mount in container["volumeMounts"]} == volumes
    # The kubelet updates no file that is mounted by itself.
    yield (
        "files are mounted with their folder",
        not any("subPath" in mount for mount in container["volumeMounts"]),
    )
    known = {flag for option in program.commands["run"].params for flag in option.opts}
    yield "every flag exists", {word.partition("=")[0] for word in container["args"][1:]} <= known
    (port,) = container["ports"]
    listened = f"--web.listen-address=:{port['containerPort']}"
    yield "it listens at its port", listened in container["args"]
    for probe in (container["livenessProbe"], container["readinessProbe"]):
        way = probe.get("httpGet", probe.get("tcpSocket"))
        yield "probes use its port", way["port"] == port["name"]
    yield from _paths(container, only(name, "ConfigMap"))


def _paths(container: Json, config_map: Json) -> Claims:
    flags = dict(word.split("=") for word in container["args"][1:] if "=" in word)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folder, _, file = flags["--config.file"].rpartition("/")
    is_mounted = mounts[folder] == "config" and list(config_map["data"]) == [file]
    yield "the configuration is mounted", is_mounted
    yield "the state is mounted", mounts[flags["--state.directory"].rpartition("/")[0]] == "state"


def _rules(name: str) -> set[tuple[str, str]]:
    found = only(name, "ClusterRole")["rules"]
    return {(resource, verb) for rule in found for resource in rule["resources"] for verb in rule["verbs"]}


def _policy(name: str) -> str:
    validations = only(name, "ValidatingAdmissionPolicy")["spec"]["validations"]
    return "\n".join(one["expression"] for one in validations)


def _access() -> Claims:
    yield "conditions need the Node", _rules("default") == _rules("everything") == CONDITIONS
    yield "a drain needs more", _rules("manifests") == CONDITIONS | DRAIN
    derived = CONDITIONS | DRAIN | {("pods", "delete")}
    yield "the rights follow from the configuration, too", _rules("given") == derived
    kinds = {one["kind"] for one in documents("given")}
    yield "no right is for conditions that the configuration turns off", "Role" not in kinds
    policies = {name: _policy(name) for name in ("default", "manifests", "given")}
    may_cordon = {name for name, text in policies.items() if CORDON in text}
    yield "the policy allows a cordon only where there is a drain", may_cordon == {"manifests", "given"}
    may_exclude = {name for name, text in policies.items() if EXCLUDE in text}
    yield "the policy allows the label only where it is set", may_exclude == {"given"}
    yield (
        "the role is for the default namespace",
        only("default", "Role")["metadata"]["namespace"] == "default",
    )
    tokens = [
        only(name, "DaemonSet")["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for name in ("default", "windows")
    ]
    yield "there is a token only where it is used", tokens == [True, False]
    kinds = {one["kind"] for one in documents("windows")}
    yield "nothing is allowed without conditions and drain", not {"ClusterRole", "Role"} & kinds
    server = {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    egress = only("everything", "NetworkPolicy")["spec"]["egress"]
    yield "the network policy lets the API server through", server in egress


def _monitors() -> Claims:
    labels = only("everything", "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    dropped = {"action": "labeldrop", "regex": "pod|container|endpoint|service"}
    for kind, key in (("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")):
        spec = only("everything", kind)["spec"]
        (endpoint,) = spec[key]
        yield f"{kind} selects the pods", spec["selector"]["matchLabels"].items() <= labels.items()
        yield f"{kind} has the job", labels[spec["jobLabel"]] == "azure-scheduled-events-exporter"
        yield f"{kind} has the port", endpoint["port"] == "metrics"
        yield f"{kind} does not name pods", dropped in endpoint["relabelings"]
        named = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}
        yield f"{kind} names the Node as instance", named in endpoint["relabelings"]
        # By it, an alert about an event inhibits those of kube-state-metrics and the kubelet.
        node = named | {"targetLabel": "node"}
        yield f"{kind} names the Node as node, too", node in endpoint["relabelings"]
        yield f"{kind} has limits where Azure needs them", ("labelLimit" in spec) is (kind == "PodMonitor")


def _windows() -> Claims:
    found = only("windows", "DaemonSet", windows=True)["spec"]
    template, labels = found["template"]["spec"], found["template"]["metadata"]["labels"]
    (container,) = template["containers"]
    user = {"windowsOptions": {"runAsUserName": "ContainerUser"}}
    yield "Windows: the system is named", template["os"] == {"name": "windows"}
    yield "Windows: Nodes are selected", template["nodeSelector"] == {"kubernetes.io/os": "windows"}
    is_closed = template["securityContext"] == user and "securityContext" not in container
    yield "Windows: there are no privileges", is_closed
    yield "Windows: it selects its pods", found["selector"]["matchLabels"].items() <= labels.items()
    other = only("windows", "DaemonSet")["spec"]["selector"]["matchLabels"]
    yield "Windows: it selects no others", not other.items() <= labels.items()
    yield from _paths(container, only("windows", "ConfigMap"))

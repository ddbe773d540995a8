"""Checks the Kubernetes manifests of deploy/k8s: each overlay renders, fits the schemas of Kubernetes, and has the documented properties.

Run by tests/deploy/manifests.rs, from the root of the repository, with the `--help` of `tollgate serve` on standard input. Prints each
error on a line and exits with 1; without errors, prints the number of objects and exits with 0.
"""

import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

K8S = pathlib.Path("deploy/k8s")
KUBECTL = pathlib.Path(sys.executable).with_name("kubectl")
# The oldest and the newest supported version of Kubernetes, and one between, of those with packaged schemas.
VERSIONS = ["1.29", "1.33", "1.36"]
# Kinds of other projects, whose schemas Kubernetes does not have: checked below.
FOREIGN = {"EnvoyFilter", "ServiceMonitor", "PrometheusRule"}

wrong = []


def check(holds, what):
    if not holds:
        wrong.append(what)


def render(folder):
    rendered = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True)
    check(rendered.returncode == 0, f"{folder}: {rendered.stderr}")
    return [document for document in yaml.safe_load_all(rendered.stdout) if document]


def fits_schemas(where, document):
    if document["kind"] in FOREIGN:
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except Exception as error:  # noqa: BLE001: any exception is a finding
            wrong.append(f"{where}: {document['kind']} by {version}: {error}")


def duration(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


def default_of(flag, serve_help):
    return re.search(rf"--{flag} .*?\[default: (\S+?)\]", serve_help).group(1)


def is_a_good_pod(where, deployment, serve_help):
    """Checks the restricted standard of pod security, and the properties in README and docs."""
    pod = deployment["spec"]["template"]["spec"]
    container, pod_security = pod["containers"][0], pod["securityContext"]
    security = container["securityContext"]
    check(pod_security["runAsNonRoot"] is True, f"{where}: may be root")
    check(pod_security["seccompProfile"] == {"type": "RuntimeDefault"}, f"{where}: seccomp")
    check(security["allowPrivilegeEscalation"] is False, f"{where}: may gain privileges")
    check(security["capabilities"] == {"drop": ["ALL"]}, f"{where}: capabilities")
    check(security["readOnlyRootFilesystem"] is True, f"{where}: root can be written")
    check(pod["automountServiceAccountToken"] is False, f"{where}: has a token")
    check(len(pod["topologySpreadConstraints"]) == 2, f"{where}: is not spread")
    image_user = re.search(r"^USER (\d+):(\d+)$", pathlib.Path("deploy/Dockerfile").read_text(), re.MULTILINE).groups()
    found = (str(pod_security["runAsUser"]), str(pod_security["runAsGroup"]))
    check(found == image_user, f"{where}: runs as {found}, the image as {image_user}")

    drain = sum(duration(default_of(flag, serve_help)) for flag in ("drain-delay", "drain-timeout"))
    grace = pod["terminationGracePeriodSeconds"]
    check(grace > drain, f"{where}: is killed after {grace} s, and drains for {drain} s")

    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    for name in ("grpc", "http"):
        listens = default_of(f"{name}-listen", serve_help).rsplit(":", 1)[1]
        check(ports[name] == listens, f"{where}: port {name} is {ports[name]}, tollgate listens on {listens}")
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        check(container[probe]["httpGet"] == {"path": path, "port": "http"}, f"{where}: {probe}")
    for setting in container["env"]:
        check(f"[env: {setting['name']}" in serve_help, f"{where}: {setting['name']} is no setting")
    check("memory" in container["resources"]["limits"], f"{where}: memory is not limited")
    check(not container["image"].endswith(":latest") and ":" in container["image"], f"{where}: which image?")


def selects_its_pods(where, documents):
    """Checks that selectors select these pods; an empty one would select every pod of the namespace."""
    deployment = one(documents, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = {
        "Deployment": lambda spec: spec["selector"]["matchLabels"],
        "Service": lambda spec: spec["selector"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
    }
    for document in documents:
        if selector := selectors.get(document["kind"]):
            wanted = selector(document["spec"])
            check(wanted and wanted.items() <= labels.items(), f"{where}: {document['kind']} selects {wanted}")


def size(text):
    """Returns the bytes of a size in the format of Kubernetes or tollgate."""
    number, unit = re.fullmatch(r"(\d+)([KMG]i)B?", text).groups()
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30}[unit]


def constant(path, name):
    """Returns a constant of the code: a product, or a shift."""
    text = pathlib.Path("src", path).read_text()
    value = re.search(rf"const {name}: \w+ = ([\d_ *<]+);", text).group(1)
    return eval(value.replace("_", ""))  # noqa: S307: digits and operators alone, by the pattern above


# Metrics of a rule, as measured with 10,000 of them.
RULE_METRICS = 4 << 10
# Memory of JSON while it is decided, as a multiple of its bytes: see src/admin/decide.rs.
JSON_GROWTH = 60


def memory_of(variables, serve_help):
    """Returns the maximum memory of a process with these variables, by its use."""

    def setting(flag):
        return variables.get("TOLLGATE_" + flag.upper().replace("-", "_")) or default_of(flag, serve_help)

    decide = {name: constant("admin/decide.rs", name) for name in ("MAX_BODY", "MAX_DECIDED")}
    http_connections = sum(constant("admin/mod.rs", name) for name in ("PUBLIC_CONNECTIONS", "ADMIN_CONNECTIONS"))
    return {
        "base": constant("settings/memory.rs", "BASE_BYTES"),
        # With Redis, the counters of `on_store_error: local`.
        "counters": size(setting("memory-max")),
        "clients": size(setting("client-memory-max")),
        # The old ones and the new ones together, while they are reloaded.
        "policies": size(setting("policy-memory-max")),
        "metrics": int(setting("metrics-max-rules")) * RULE_METRICS,
        "journal": size(setting("denial-journal")),
        # The last read can double the buffer.
        "HTTP": http_connections * 2 * constant("admin/server.rs", "MAX_HEAD"),
        # The bodies themselves are in the memory of clients.
        "JSON": decide["MAX_BODY"] * decide["MAX_DECIDED"] * JSON_GROWTH,
    }


def has_memory_for_its_bounds(where, container, serve_help):
    variables = {setting["name"]: setting["value"] for setting in container.get("env", [])}
    parts = memory_of(variables, serve_help)
    limit = size(container["resources"]["limits"]["memory"])
    text = ", ".join(f"{name} {bytes >> 20}" for name, bytes in parts.items())
    check(sum(parts.values()) <= limit, f"{where}: {limit >> 20} MiB, and its bounds are {sum(parts.values()) >> 20} MiB: {text}")
    check(size(container["resources"]["requests"]["memory"]) <= limit, f"{where}: requests more than its limit")


def admits_only_clients(where, documents):
    """Checks that gRPC and HTTP are each open to their own clients only."""
    policy = one(documents, "NetworkPolicy")["spec"]
    check(set(policy["policyTypes"]) == {"Ingress", "Egress"}, f"{where}: a direction is open")
    ports = []
    for rule in policy["ingress"]:
        ports.append([port["port"] for port in rule["ports"]])
        for peer in rule.get("from", [{}]):
            labels = [selector.get("matchLabels") for selector in peer.values()]
            check(any(labels), f"{where}: {ports[-1]} is open to all: {peer}")
    check(sorted(ports) == [["grpc"], ["http"]], f"{where}: ports are admitted together: {ports}")


def one(documents, kind):
    found = [document for document in documents if document["kind"] == kind]
    return found[0] if len(found) == 1 else None


def settings(documents):
    container = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {setting["name"]: setting["value"] for setting in container["env"]}


def main():
    serve_help = re.sub(r"\s+", " ", sys.stdin.read())
    overlays = sorted(path.parent for path in K8S.glob("overlays/*/kustomization.yaml"))
    components = [path for path in overlays if "kind: Component" in (path / "kustomization.yaml").read_text()]
    rendered = {folder.name: render(folder) for folder in [K8S / "base", *overlays] if folder not in components}
    # A component is rendered in an overlay that uses it.
    trial = K8S / "overlays" / ".trial"
    trial.mkdir(exist_ok=True)
    try:
        (trial / "kustomization.yaml").write_text("resources: [../redis-cluster]\ncomponents: [../servicemonitor]\n")
        rendered["servicemonitor"] = render(trial)
    finally:
        (trial / "kustomization.yaml").unlink()
        trial.rmdir()

    objects = 0
    for where, documents in rendered.items():
        for document in documents:
            fits_schemas(where, document)
            objects += 1
        if deployment := one(documents, "Deployment"):
            is_a_good_pod(where, deployment, serve_help)
            selects_its_pods(where, documents)
            has_memory_for_its_bounds(where, deployment["spec"]["template"]["spec"]["containers"][0], serve_help)
            admits_only_clients(where, documents)
            example = pathlib.Path("config/policies/api-gateway.yaml").read_text()
            check(one(documents, "ConfigMap")["data"]["gateway.yaml"] == example, f"{where}: another policy than the example")
            service = one(documents, "Service")["spec"]
            check(service["clusterIP"] == "None", f"{where}: gRPC would be balanced by connection")

    embedded = rendered["embedded"]
    deployment = one(embedded, "Deployment")["spec"]
    check(deployment["replicas"] == 1 and deployment["strategy"] == {"type": "Recreate"}, "embedded: two would count apart")
    check(one(embedded, "HorizontalPodAutoscaler") is None, "embedded: an autoscaler would start a second")
    check(settings(embedded)["TOLLGATE_STORE"] == "memory", "embedded: the store")
    for where in ("redis", "redis-cluster"):
        shared = rendered[where]
        check(settings(shared)["TOLLGATE_STORE"].startswith(f"{where}://"), f"{where}: the store")
        check(one(shared, "HorizontalPodAutoscaler")["spec"]["minReplicas"] > 1, f"{where}: one replica is none in a rollout")
        rules = [rule for rule in one(shared, "NetworkPolicy")["spec"]["egress"] if {"protocol": "TCP", "port": 6379} in rule["ports"]]
        labels = [peer["podSelector"]["matchLabels"] for rule in rules for peer in rule["to"]]
        check(labels == [{"app.kubernetes.io/name": where}], f"{where}: the network keeps Redis away")

    gateway = yaml.safe_load(one(rendered["envoy-gateway"], "ConfigMap")["data"]["envoy-gateway.yaml"])
    check(gateway["apiVersion"] == "gateway.envoyproxy.io/v1alpha1" and gateway["kind"] == "EnvoyGateway", "envoy-gateway: kind")
    image = gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"]["image"]
    check(image == one(shared, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"], "envoy-gateway: the image")
    has_memory_for_its_bounds("envoy-gateway", gateway["provider"]["kubernetes"]["rateLimitDeployment"]["container"], serve_help)
    check(gateway["rateLimit"]["backend"]["type"] == "Redis" and gateway["rateLimit"]["backend"]["redis"]["url"], "envoy-gateway: Redis")

    envoy_filter = one(rendered["istio"], "EnvoyFilter")
    check(envoy_filter["metadata"]["namespace"] == "istio-system", "istio: the filter is not where the gateway is")
    admitted = one(rendered["istio"], "NetworkPolicy")["spec"]["ingress"][0]["from"]
    gateways = envoy_filter["spec"]["workloadSelector"]["labels"]
    check([peer["podSelector"]["matchLabels"] for peer in admitted] == [gateways], f"istio: gateways {gateways}, admitted {admitted}")
    applied = [patch["applyTo"] for patch in envoy_filter["spec"]["configPatches"]]
    check(applied == ["CLUSTER", "HTTP_FILTER", "VIRTUAL_HOST"], f"istio: {applied}")
    service, namespace = one(rendered["istio"], "Service"), one(rendered["istio"], "Namespace")["metadata"]["name"]
    name = f"{service['metadata']['name']}.{namespace}.svc"
    check(name in str(envoy_filter), f"istio: the cluster is not {name}")

    monitor, rules = one(rendered["servicemonitor"], "ServiceMonitor"), one(rendered["servicemonitor"], "PrometheusRule")
    service = one(rendered["servicemonitor"], "Service")
    check(monitor["apiVersion"] == rules["apiVersion"] == "monitoring.coreos.com/v1", "servicemonitor: version")
    check(monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items(), "servicemonitor: selects nothing")
    check(service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "tollgate", "servicemonitor: the job has another name")
    ports = [port["name"] for port in service["spec"]["ports"]]
    check(monitor["spec"]["endpoints"][0]["port"] in ports, "servicemonitor: no such port")
    alerts = yaml.safe_load(pathlib.Path("deploy/observability/alerts.yaml").read_text())
    check(rules["spec"] == alerts, "servicemonitor: rules.yaml has other alerts than deploy/observability/alerts.yaml")

    print("\n".join(wrong) or f"{objects} objects")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

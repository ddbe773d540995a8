"""Checks the Helm chart of deploy/helm/tollgate: its values, their schema and their table in README.md agree, and its renderings
fit the schemas of Kubernetes and agree with those of deploy/k8s.

Run by tests/deploy/manifests.rs, from the root of the repository, with the `--help` of `tollgate serve` on standard input. Prints
each error on a line and exits with 1. Checks the renderings in tests/deploy/helm/golden; `.ci/run` compares these with the output of
helm (`deploy/helm/check`), since it takes minutes to install helm.

With the argument `write`, writes the table of README.md and the schema.
"""

import json
import pathlib
import re
import sys

import yaml

import manifests
from manifests import check, one, wrong

CHART = pathlib.Path("deploy/helm/tollgate")
GOLDEN = pathlib.Path("tests/deploy/helm/golden")
# Schemas of lists, and of maps with any keys.
STRINGS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
OBJECTS = {"type": "array", "items": {"type": "object"}}
SCHEMAS = {
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "store.type": {"enum": ["memory", "redis", "sentinel", "cluster"]},
    "store.addresses": {"type": "array", "items": {"type": "string", "pattern": "^[^/@]+$"}},
    "policies.files": {"type": "object", "additionalProperties": {"type": "string"}},
    "policies.controlPlane": {"type": "string", "pattern": "^([^/]+:[0-9]+)?$"},
    "settings": {"type": "object", "additionalProperties": False, "patternProperties": {"^TOLLGATE_": {"type": ["string", "number", "boolean"]}}},
    "memory.counters": {"type": "string", "pattern": "^[0-9]+([KMG]iB)?$"},
    "memory.clients": {"type": "string", "pattern": "^[0-9]+([KMG]iB)?$"},
    "memory.policies": {"type": "string", "pattern": "^[0-9]+([KMG]iB)?$"},
    "workers": {"type": "integer", "minimum": 1},
    "replicas": {"type": "integer", "minimum": 1},
    "resources": {"type": "object"},
    "affinity": {"type": "object"},
    "tolerations": OBJECTS,
    "image.pullSecrets": OBJECTS,
    "networkPolicy.clients": OBJECTS,
    "networkPolicy.monitoring": OBJECTS,
    "networkPolicy.dns": OBJECTS,
    "networkPolicy.egress": OBJECTS,
    **{name: STRINGS for name in (
        "service.annotations", "serviceAccount.annotations", "serviceMonitor.labels", "prometheusRule.labels", "dashboard.labels",
        "podAnnotations", "podLabels", "nodeSelector")},
}


def leaves(values, at=""):
    """Yields the values that a user can set, by their paths."""
    for key, value in values.items():
        path = f"{at}{key}"
        if isinstance(value, dict) and path not in SCHEMAS:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def schema(values, at=""):
    properties = {}
    for key, value in values.items():
        path = f"{at}{key}"
        if path in SCHEMAS:
            properties[key] = SCHEMAS[path]
        elif isinstance(value, dict):
            properties[key] = schema(value, f"{path}.")
        elif isinstance(value, bool):
            properties[key] = {"type": "boolean"}
        elif isinstance(value, int):
            properties[key] = {"type": "integer"}
        else:
            properties[key] = {"type": "string"}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def full_schema(values):
    whole = {"$schema": "https://json-schema.org/draft-07/schema#", "title": "Values of the chart tollgate", **schema(values)}
    # Of a chart that includes this one.
    whole["properties"]["global"] = {"type": "object"}
    return json.dumps(whole, indent=2) + "\n"


def comments(text):
    """The comment above each line of values.yaml, by the path of its key."""
    found, path, above = {}, [], []
    for line in text.splitlines():
        if comment := re.fullmatch(r"\s*# (.*)", line):
            above.append(comment.group(1))
            continue
        if key := re.match(r"( *)(\w+):", line):
            path = [*path[: len(key.group(1)) // 2], key.group(2)]
            found[".".join(path)] = " ".join(above)
        above = []
    return found


def table(values, text):
    meanings = comments(text)
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, value in leaves(values):
        parts = path.split(".")
        meaning = next((meanings[".".join(parts[:end])] for end in range(len(parts), 0, -1) if meanings.get(".".join(parts[:end]))), "")
        shown = json.dumps(value).replace("|", "\\|")
        rows.append(f"| `{path}` | `{shown}` | {meaning} |")
    return "\n".join(rows)


def with_table(readme, rows):
    return re.sub(r"(?s)(<!-- values -->\n).*?(\n<!-- end of values -->)", lambda found: found.group(1) + rows + found.group(2), readme)


def without_target(scaler):
    return scaler and {field: value for field, value in scaler["spec"].items() if field != "scaleTargetRef"}


def container(documents):
    return one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]


def is_as_the_overlay(where, documents, overlay):
    """The chart and kustomize differ in names, labels, images and policies."""
    ours, theirs = (found["spec"]["template"]["spec"] for found in (one(documents, "Deployment"), one(overlay, "Deployment")))
    for field in ("automountServiceAccountToken", "terminationGracePeriodSeconds"):
        check(ours[field] == theirs[field], f"{where}: {field}")
    security = {**theirs["securityContext"], "fsGroup": 65534}
    check(ours["securityContext"] == security, f"{where}: securityContext")
    one_container, other = ours["containers"][0], theirs["containers"][0]
    for field in ("args", "ports", "livenessProbe", "readinessProbe", "securityContext"):
        check(one_container[field] == other[field], f"{where}: {field} of the container")
    strategy = [one(found, "Deployment")["spec"]["strategy"] for found in (documents, overlay)]
    check(strategy[0] == strategy[1], f"{where}: strategy")
    scaling = [without_target(one(found, "HorizontalPodAutoscaler")) for found in (documents, overlay)]
    check(scaling[0] == scaling[1] or where == "redis", f"{where}: the autoscaler")
    ports = [one(found, "Service")["spec"]["ports"] for found in (documents, overlay)]
    check(ports[0] == ports[1] or where == "managed-tls", f"{where}: the Service")
    common = set(manifests.settings(documents)) & set(manifests.settings(overlay)) - {"TOLLGATE_STORE", "TOLLGATE_MEMORY_MAX"}
    for name in common:
        check(manifests.settings(documents)[name] == manifests.settings(overlay)[name], f"{where}: {name}")


def main():
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    readme = CHART / "README.md"
    written = {readme: with_table(readme.read_text(), table(values, text)), CHART / "values.schema.json": full_schema(values)}
    for path, expected in written.items():
        if "write" in sys.argv:
            path.write_text(expected)
        check(path.exists() and path.read_text() == expected, f"{path} is not of values.yaml: python3 tests/deploy/chart.py write")
    serve_help = re.sub(r"\s+", " ", sys.stdin.read())
    renderings = {path.stem: [found for found in yaml.safe_load_all(path.read_text()) if found] for path in GOLDEN.glob("*.yaml")}
    overlays = {name: manifests.render(manifests.K8S / name) for name in ("overlays/embedded", "overlays/redis-cluster")}
    objects = 0
    for where, documents in renderings.items():
        for document in documents:
            manifests.fits_schemas(where, document)
            objects += 1
        manifests.is_a_good_pod(where, one(documents, "Deployment"), serve_help)
        manifests.selects_its_pods(where, documents)
        manifests.has_memory_for_its_bounds(where, container(documents), serve_help)
        if one(documents, "NetworkPolicy"):
            manifests.admits_only_clients(where, documents)
        is_as_the_overlay(where, documents, overlays["overlays/embedded" if where == "memory" else "overlays/redis-cluster"])
        is_one = one(documents, "Deployment")["spec"].get("replicas") == 1
        check(is_one == (where == "memory"), f"{where}: replicas")
    check(set(renderings) == {path.stem for path in GOLDEN.parent.glob("values/*.yaml")}, "each case has a rendering")
    stores = {
        "memory": "memory",
        "redis": "redis://redis.cache:6379",
        "managed-tls": "rediss://cache.example:6380",
        "sentinel": "redis-sentinel://mymaster@sentinel-0.sentinel,sentinel-1.sentinel,sentinel-2.sentinel",
        "cluster-monitored": "redis-cluster://redis-cluster-0.redis-cluster,redis-cluster-1.redis-cluster",
    }
    for where, store in stores.items():
        check(manifests.settings(renderings[where])["TOLLGATE_STORE"] == store, f"{where}: the store")
    monitored = renderings["cluster-monitored"]
    alerts = yaml.safe_load(pathlib.Path("deploy/observability/alerts.yaml").read_text())
    check(one(monitored, "PrometheusRule")["spec"] == alerts, "cluster-monitored: other alerts than deploy/observability/alerts.yaml")
    dashboard = next(found for found in monitored if "tollgate.json" in found.get("data", {}))["data"]["tollgate.json"]
    check(dashboard == pathlib.Path("deploy/observability/dashboard.json").read_text(), "cluster-monitored: another dashboard")
    monitor, service = one(monitored, "ServiceMonitor"), one(monitored, "Service")
    check(monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items(), "cluster-monitored: selects nothing")
    check(service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "tollgate", "cluster-monitored: the job has another name")
    print("\n".join(wrong) or f"{objects} objects")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

"""Checks deploy/compose.yaml by the specification of Compose, and that all files and services that it names exist.

Run by tests/deploy/manifests.rs, from the root of the repository. Prints each error on a line and exits with 1.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import compose_spec
import yaml

COMPOSE = pathlib.Path("deploy/compose.yaml")
PLAYGROUND = pathlib.Path("deploy/playground")

wrong = []


def check(holds, what):
    if not holds:
        wrong.append(what)


def main():
    text = COMPOSE.read_text()
    resolved = yaml.safe_load(text)
    # The parser does not support aliases. It rejects unknown keys and wrong types.
    compose_spec._PyCompose.from_yaml(yaml.safe_dump(resolved)).validate()
    services = resolved["services"]

    mounted = {}
    for name, service in services.items():
        for needed in service.get("depends_on", []):
            check(needed in services, f"{name} depends on {needed}, which is none")
        for volume in service.get("volumes", []):
            source, target, mode = volume.split(":")
            mounted[target] = COMPOSE.parent / source
            check(mounted[target].exists(), f"{name}: there is no {source}")
            check(mode == "ro", f"{name}: {source} can be written")
        for port in service.get("ports", []):
            check(port.startswith("127.0.0.1:"), f"{name}: {port} is open to other machines")
    build = services["tollgate"]["build"]
    check((COMPOSE.parent / build["context"] / build["dockerfile"]).exists(), "the Dockerfile is elsewhere")
    check(services["tollgate"]["deploy"]["replicas"] == 2, "two tollgates were promised")
    nodes = services["tollgate"]["command"][-1].removeprefix("redis-cluster://").split(",")
    check(len(nodes) == 3 and all(node in services for node in nodes), f"the store's nodes are {nodes}")

    prometheus = yaml.safe_load((PLAYGROUND / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in prometheus["scrape_configs"]}
    check(jobs["tollgate"]["dns_sd_configs"][0]["names"] == ["tollgate"], "the tollgates are not scraped")
    check(jobs["envoy"]["static_configs"][0]["targets"] == ["envoy:9901"], "Envoy is not scraped")
    with tempfile.TemporaryDirectory() as folder:
        for source in (PLAYGROUND / "prometheus.yaml", pathlib.Path("deploy/observability/alerts.yaml")):
            (pathlib.Path(folder) / source.name).write_text(source.read_text())
        result = subprocess.run(["promtool", "check", "config", f"{folder}/prometheus.yaml"], capture_output=True, text=True)
        check(result.returncode == 0, f"promtool: {result.stdout}{result.stderr}")

    datasource = yaml.safe_load((PLAYGROUND / "grafana-datasource.yaml").read_text())["datasources"][0]
    check(datasource["url"] == "http://prometheus:9090" and "prometheus" in services, "Grafana's data are elsewhere")
    provider = yaml.safe_load((PLAYGROUND / "grafana-dashboards.yaml").read_text())["providers"][0]
    dashboard = f"{provider['options']['path']}/tollgate.json"
    check(json.loads(mounted[dashboard].read_text())["uid"] == "tollgate", "the dashboard is another")

    envoy = PLAYGROUND / "envoy.yaml"
    result = subprocess.run([".venv/bin/envoy", "--mode", "validate", "-c", envoy, "--disable-hot-restart"], capture_output=True, text=True)
    check(result.returncode == 0, f"envoy: {result.stdout}{result.stderr}")

    print("\n".join(wrong) or f"{len(services)} services")
    sys.exit(bool(wrong))


main()

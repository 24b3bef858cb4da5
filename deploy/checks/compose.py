#!/usr/bin/env python3
"""Holds deploy/compose against what it says of itself, after docker-compose has read it.

    compose.py CONFIG SECRETS    CONFIG: what `docker-compose config` printed; SECRETS: what make-secrets.sh made
"""
import pathlib
import re
import sys

import yaml

COMPOSE = pathlib.Path(__file__).resolve().parents[1] / "compose"
OURS = ("tributary-1", "tributary-2", "work")
wrong = []


def must(holds, problem):
    if not holds:
        wrong.append(problem)


def check_service(name, service, secrets):
    must(re.search(r"@sha256:[0-9a-f]{64}$", service["image"]), f"{name}: an image without a digest")
    must("privileged" not in service and service.get("network_mode") != "host", f"{name}: has more than it needs")
    for key, value in (service.get("environment") or {}).items():
        looks = re.search("PASSWORD|SECRET|TOKEN|KEY", key) and not key.endswith("_FILE")
        must(not looks, f"{name}: {key}={value!r} looks like a secret; mount a file")
    for volume in service.get("volumes", []):
        path = pathlib.Path("/" + volume.split("/deploy/", 1)[1].split(":")[0]) if volume.startswith("/deploy/") else None
        if path and path.parent.name == "secrets":
            must((secrets / path.name).exists(), f"{name}: make-secrets.sh does not make {path.name}")
        elif path:
            must(COMPOSE.parent.joinpath(*path.parts[1:]).exists(), f"{name}: there is no {path}")
    for secret in service.get("secrets", []):
        must((secrets / secret["source"]).exists(), f"{name}: make-secrets.sh does not make {secret['source']}")


def main(config, secrets):
    services = config["services"]
    for name, service in services.items():
        check_service(name, service, secrets)
    for name in (*OURS, *services.keys() & {"region"}):
        ours = services[name]
        must(ours.get("read_only") and ours.get("cap_drop") == ["ALL"], f"{name}: root folder or capabilities")
        must("no-new-privileges:true" in ours.get("security_opt", []), f"{name}: may gain rights")
        must("ports" not in ours, f"{name}: is reached without the balancer")
    must([port["published"] for port in services["balancer"]["ports"]] == [8443], "the balancer's port")

    behind = re.findall(r"^\s*server (\S+) (\S+):8443", (COMPOSE / "haproxy.cfg").read_text(), re.M)
    must([pair for pair in behind] == [(name, name) for name in OURS[:2]], f"haproxy.cfg has {behind}")
    scraped = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"][0]
    must(scraped["job_name"] == "tributary", "alerts look for the job tributary")
    must(scraped["static_configs"][0]["targets"] == [f"{name}:8444" for name in OURS], "prometheus.yml misses a process")
    must({"secrets", "services", "volumes"} <= config.keys(), "docker-compose printed something else")
    for name in config["secrets"]:
        must((secrets / name).stat().st_mode & 0o077 == 0 or name.endswith(".pem"), f"{name} may be read by others")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"compose: {len(services)} services are in order")


main(yaml.safe_load(open(sys.argv[1])), pathlib.Path(sys.argv[2]))

#!/usr/bin/env python3
"""Holds deploy/serving against Kubernetes' schemas and the rules of the chart's pods, against itself, and against what
`tributary infer serve` takes and publishes.

    serving.py BINARY    BINARY: the executable, asked for its flags
"""
import pathlib
import re
import subprocess
import sys

import yaml
from chart import check_pod, check_validators, must, must_be_valid
from names import ROOT, metrics, source

FILES = {path.name: path.read_text() for path in (ROOT / "deploy/serving").glob("*.yaml")}
METRIC = "tributary_infer_desired_replicas"
# Changes that must be noticed, each with words of the complaint.
NOTICED = [
    ("models.yaml", "--health=0", "--helth=0", "takes no --helth"),
    ("models.yaml", "--health=0.0.0.0:8501", "--health=0.0.0.0:8502", "ports"),
    ("models.yaml", "--replicas-of=tributary-models-pods", "--replicas-of=tributary-models", "no headless Service"),
    ("models.yaml", "--replicas-max=10", "--replicas-max=9", "replicas"),
    ("models.yaml", "  selector: {app.kubernetes.io/name: tributary-models}", "  selector: {app.kubernetes.io/name: models}", "selects"),
    ("models.yaml", "secretKeyRef: {name: tributary-models-token", "secretKeyRef: {name: tributary-token", "nobody is told to make"),
    ("models.yaml", "tls/tls.key", "tls/models-key.pem", "no models-key.pem"),
    ("models.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "root folder"),
    ("models.yaml", "path: /v2/health/ready", "path: /readyz", "health does not answer /readyz"),
    ("models.yaml", "maxUnavailable: 1", "maxUnavailble: 1", "maxUnavailble"),
    ("autoscale-keda.yaml", METRIC, "tributary_infer_replicas", "largest"),
    ("autoscale-hpa.yaml", "as: tributary_infer_desired_replicas_max", "as: desired", "prometheus-adapter"),
    ("autoscale-hpa.yaml", "kind: Deployment, name: tributary-models", "kind: Deployment, name: models", "no Deployment"),
]


def takes(binary):
    """The flags of `infer serve` that take a value."""
    told = subprocess.run([binary, "infer", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+) <", told, re.M))


def answered():
    """Paths that the health port answers."""
    text = (ROOT / "serving/src/server/v2/mod.rs").read_text()
    router = re.search(r"fn health_router\(.*?\n}\n", text, re.S).group(0)
    return set(re.findall(r'\.route\("([^"]+)"', router))


def told_to_make(text):
    """Secret or ConfigMap to its keys, by the commands in a file's comments."""
    made = {name: {"tls.crt", "tls.key"} for name in re.findall(r"kubectl create secret tls ([\w-]+) ", text)}
    made.update((name, {key}) for name, key in re.findall(r"kubectl create (?:secret generic|configmap) ([\w-]+) --from-file=(\S+)", text))
    return made


def check_container(pod, known, made):
    """Its flags, by name; where its files come from."""
    container, = pod["containers"]
    must(container["args"][:2] == ["infer", "serve"], "models.yaml: does not run `tributary infer serve`")
    flags = dict(arg.removeprefix("--").split("=", 1) for arg in container["args"][2:])
    for flag in sorted(flags.keys() - known):
        sys.exit(f"models.yaml: `tributary infer serve` takes no --{flag}")
    sources = {}
    for volume in pod["volumes"]:
        name = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
        must(name is None or name in made, f"models.yaml: nobody is told to make {name}")
        sources[volume["name"]] = made.get(name)
    for variable in container["env"]:
        wanted = variable["valueFrom"]["secretKeyRef"]
        must(wanted["key"] in made.get(wanted["name"], ()), f"models.yaml: nobody is told to make {wanted['name']}")
    for flag, value in flags.items():
        path = pathlib.PurePosixPath(value)
        if path.is_absolute():
            mounts = [mount for mount in container["volumeMounts"] if path.is_relative_to(mount["mountPath"])]
            must(len(mounts) == 1, f"models.yaml: nothing is mounted for --{flag}={value}")
            keys = sources[mounts[0]["name"]]
            must(keys is None or path.name in keys, f"models.yaml: what is mounted for --{flag} has no {path.name}")
            must(mounts[0].get("readOnly", False) == (flag != "models"), f"models.yaml: --{flag}={value}: may be written, or has to be")
    return flags


def check_ports(pod, flags, services, policy):
    container, = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    asked = {"https": flags["listen"], "health": flags["health"]}
    must({name: f"0.0.0.0:{port}" for name, port in ports.items()} == asked, f"models.yaml: listens at {asked}, its ports are {ports}")
    for probe in (container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")):
        must(probe["port"] == "health" and probe["path"] in answered(), f"models.yaml: health does not answer {probe['path']}")
    named = [port["targetPort"] for service in services.values() for port in service["spec"]["ports"]]
    named += [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    must(set(named) == ports.keys(), f"models.yaml: there are ports {sorted(ports)}, and {sorted(set(named))} are named")


def check_models(text, known):
    """The Deployment, its flags, and the job under which Prometheus has its metrics."""
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        must_be_valid("models.yaml", document)
    kinds = [document["kind"] for document in documents]
    must("Secret" not in kinds, "models.yaml: has a Secret; they are given by name")
    one = {document["kind"]: document for document in documents}
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    must(len(kinds) == len(one) + len(services) - 1, f"models.yaml: several of a kind: {kinds}")
    deployment, monitor = one["Deployment"], one["ServiceMonitor"]["spec"]
    template = deployment["spec"]["template"]
    check_pod("Deployment", deployment["metadata"]["name"], template)
    flags = check_container(template["spec"], known, told_to_make(text))
    check_ports(template["spec"], flags, services, one["NetworkPolicy"])

    selectors = [deployment["spec"]["selector"]["matchLabels"], one["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
    selectors += [one["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    selectors += [spread["labelSelector"]["matchLabels"] for spread in template["spec"]["topologySpreadConstraints"]]
    selectors += [service["spec"]["selector"] for service in services.values()]
    for selector in selectors:
        must(selector == template["metadata"]["labels"], f"models.yaml: {selector} selects no pods of the Deployment, or others too")

    counted = services.get(flags["replicas-of"], {}).get("spec", {})
    must(counted.get("clusterIP") == "None", f"models.yaml: no headless Service is called {flags['replicas-of']}")
    must("publishNotReadyAddresses" not in counted, "models.yaml: pods that are not ready are counted")
    wanted = monitor["selector"]["matchLabels"].items()
    scraped = [service for service in services.values() if wanted <= service["metadata"]["labels"].items()]
    must(len(scraped) == 1, f"models.yaml: Prometheus looks at {len(scraped)} Services")
    endpoint, = monitor["endpoints"]
    must([endpoint["port"]] == [port["name"] for port in scraped[0]["spec"]["ports"]], "models.yaml: Prometheus asks another port")
    must(endpoint["path"] in answered(), f"models.yaml: health does not answer {endpoint['path']}")
    return deployment, flags, scraped[0]["metadata"]["labels"][monitor["jobLabel"]]


def check_autoscalers(files, deployment, flags, job):
    keda = yaml.safe_load(files["autoscale-keda.yaml"])
    must(f"{keda['apiVersion']}/{keda['kind']}" == "keda.sh/v1alpha1/ScaledObject", "autoscale-keda.yaml: another kind")
    trigger, = keda["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    must(trigger["type"] == "prometheus" and trigger["metadata"]["threshold"] == "1", "autoscale-keda.yaml: what is asked is no number of replicas")
    must(query == f'max({METRIC}{{job="{job}"}})', f"autoscale-keda.yaml: asks {query}, which is not the largest {METRIC} of the job {job}")

    hpa = yaml.safe_load(files["autoscale-hpa.yaml"])
    must_be_valid("autoscale-hpa.yaml", hpa)
    metric, = hpa["spec"]["metrics"]
    must(metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}, "autoscale-hpa.yaml: what is asked is no number of replicas")
    lines = [line[2:] for line in files["autoscale-hpa.yaml"].splitlines() if line.startswith("#   ")]
    rule, = yaml.safe_load("\n".join(lines))["externalRules"]
    expected = {
        "seriesQuery": f'{{__name__="{METRIC}",job="{job}"}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "name": {"as": metric["external"]["metric"]["name"]},
        "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>})",
    }
    must(rule == expected, f"autoscale-hpa.yaml: prometheus-adapter is given {rule}, not {expected}")

    bounds = (int(flags["replicas-min"]), int(flags["replicas-max"]))
    for name, spec, least, most in (
        ("autoscale-keda.yaml", keda["spec"], "minReplicaCount", "maxReplicaCount"),
        ("autoscale-hpa.yaml", hpa["spec"], "minReplicas", "maxReplicas"),
    ):
        target = {"apiVersion": deployment["apiVersion"], "kind": deployment["kind"], **spec["scaleTargetRef"]}
        ours = {"apiVersion": deployment["apiVersion"], "kind": deployment["kind"], "name": deployment["metadata"]["name"]}
        must(target == ours, f"{name}: there is no Deployment {spec['scaleTargetRef']}")
        must((spec[least], spec[most]) == bounds, f"{name}: has other numbers of replicas than models.yaml, {bounds}")
    must("replicas" not in deployment["spec"], "models.yaml: would undo what an autoscaler chose")
    return hpa


def check(files, known):
    deployment, flags, job = check_models(files["models.yaml"], known)
    hpa = check_autoscalers(files, deployment, flags, job)
    return [*yaml.safe_load_all(files["models.yaml"]), hpa], flags


def check_noticed(known):
    for name, before, after, words in NOTICED:
        must(before in FILES[name], f"{name} has no {before!r} to change")
        try:
            check({**FILES, name: FILES[name].replace(before, after)}, known)
        except SystemExit as complaint:
            must(words in str(complaint), f"{name} with {after!r} is noticed, but with: {complaint}")
        else:
            sys.exit(f"{name} with {after!r} is not noticed")


def main(binary):
    kind, labels = metrics(source()).get(METRIC, (None, None))
    must((kind, labels) == ("gauge", set()), f"the source publishes no gauge {METRIC} without labels")
    known = takes(binary)
    documents, flags = check(FILES, known)
    check_validators(documents)
    check_noticed(known)
    kinds = ", ".join(sorted({document["kind"] for document in documents}))
    print(f"serving: {len(documents)} documents, {kinds}; {len(flags)} flags that `tributary infer serve` takes; {len(NOTICED)} mistakes are noticed")
    print(
        "serving: NOT CHECKED against schemas of their makers, which are not here: KEDA's ScaledObject and the rule of prometheus-adapter"
        " (their names, bounds and metric agree with the rest); nothing was applied to a cluster"
    )


if __name__ == "__main__":
    main(sys.argv[1])

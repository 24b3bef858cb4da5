#!/usr/bin/env python3
"""Lints and renders the Helm chart for every file of values in its ci/ folder, and validates what comes out strictly.

    chart.py FOLDER    writes each rendered coordinator.toml to FOLDER/NAME.toml
"""
import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE.parent / "helm/tributary"
# Oldest and newest for which there are schemas here; the chart asks for 1.30.
VERSIONS = ("1.30", "1.37")
# Kinds of other makers: their own schemas, in full for what the chart uses.
OTHERS = json.loads((HERE / "monitoring.schema.json").read_text())
# Changes to a file of values that must be refused, each with words of the reason.
REFUSED = [
    ("minimal", {"replicas": {"count": 2}}, "one database"),
    ("minimal", {"workers": {"count": 1}}, "one database"),
    ("minimal", {"image": {"digest": "latest"}}, "digest"),
    ("minimal", {"publicNames": []}, "publicNames"),
    ("minimal", {"replcas": {"count": 1}}, "replcas"),
    ("minimal", {"config": {"htpp": {"listen": "x"}}}, "htpp"),
    ("minimal", {"identity": {"membersCa": {"configMap": "members"}}}, "serverTlsSecret"),
    ("minimal", {"database": {"url": "postgres://user:secret@host/db"}}, "database"),
    ("production", {"blobs": {"url": "file:/var/lib/tributary/blobs"}}, "one store"),
    ("production", {"identity": {"sealSecret": {"name": ""}}}, "sealing key"),
    ("production", {"identity": {"caSecret": {"name": ""}}}, "same authority"),
    ("minimal", {"signedRequests": {"enabled": True}}, "networkPolicy.balancers"),
    ("production", {"identity": {"sealUrl": ""}}, "ReadWriteMany"),
    ("production", {"identity": {"sealUrl": "file:/var/lib/seal"}}, "sealUrl"),
    ("minimal", {"identity": {"sealUrl": "s3://seal/keys"}}, "identity.sealSecret"),
    ("region", {"region": {"name": ""}}, "region.name"),
    ("region", {"region": {"upstreamCa": {"configMap": ""}}}, "region.upstreamCa"),
    ("region", {"region": {"operatorTokenSecret": {"name": ""}}}, "operator token"),
    ("region", {"region": {"upstream": "http://global.example"}}, "upstream"),
    ("signer", {"identity": {"signer": {"caConfigMap": ""}}}, "caConfigMap"),
]


def merged(below, above):
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


def must(holds, problem):
    if not holds:
        sys.exit(problem)


def render(chart, values):
    return [
        document
        for path, text in sorted(chart.render(values, name="fed", namespace="federation", is_install=True).items())
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def validate(document):
    schema = OTHERS.get(f"{document['apiVersion']}/{document['kind']}")
    if schema:
        jsonschema.Draft202012Validator(schema).validate(document)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def must_be_valid(place, document):
    try:
        validate(document)
    except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        sys.exit(f"{place}: {document['kind']}/{document['metadata']['name']}: {getattr(error, 'message', error)}")


def check_pod(kind, name, pod):
    """What every pod must be, whatever the values."""
    place = f"{kind}/{name}"
    spec = pod["spec"]
    user = spec["securityContext"]
    must(user["runAsNonRoot"] and user["runAsUser"] > 0 and user["seccompProfile"]["type"] == "RuntimeDefault", f"{place}: user")
    must(spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, f"{place}: what is put in")
    must(not ({"hostNetwork", "hostPID", "hostIPC"} & spec.keys()), f"{place}: uses the host's")
    must(len(spec["topologySpreadConstraints"]) == 2, f"{place}: spread")
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        context = container["securityContext"]
        must(context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], f"{place}: root folder")
        must(context["capabilities"] == {"drop": ["ALL"]} and not context.get("privileged"), f"{place}: capabilities")
        must("@sha256:" in container["image"], f"{place}: an image without a digest")
        must("resources" in container, f"{place}: resources")
        # A container that serves nothing has nothing to probe.
        must(not container.get("ports") or {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys(), f"{place}: probes")
        must({mount["name"] for mount in container["volumeMounts"]} == volumes, f"{place}: volumes and mounts differ")


def check(chart, name, values, folder):
    report = lint(CHART, values, strict=True, kube_version="v1.30.0")
    messages = [message for message in report["messages"] if message["severity"] > 1]
    must(not messages and not report["errors"], f"lint with {name}: {messages} {report['errors']}")
    documents = render(chart, values)
    kinds = [document["kind"] for document in documents]
    must("Secret" not in kinds, f"{name}: a Secret is rendered; they are given by name")
    for document in documents:
        must_be_valid(name, document)
        if document["kind"] == "Deployment":
            check_pod(document["kind"], document["metadata"]["name"], document["spec"]["template"])
        if document["kind"] == "ConfigMap" and "coordinator.toml" in document["data"]:
            (folder / f"{name}.toml").write_text(document["data"]["coordinator.toml"])
        if document["kind"] == "ConfigMap" and "regional.toml" in document["data"]:
            must(document["data"]["regional.toml"] == values["region"]["through"], f"{name}: regional.toml differs from region.through")
    print(f"chart: {name}: {len(documents)} documents, {', '.join(sorted(set(kinds)))}")
    return documents


def check_refusals(chart, values):
    for name, change, words in REFUSED:
        try:
            changed = merged(values[name], change)
            chart.validate_schema(changed)
            render(chart, changed)
        except Exception as error:  # whichever of Helm's
            must(words in str(error), f"{name} with {change} is refused, but with: {error}")
        else:
            sys.exit(f"{name} with {change} is not refused")
    print(f"chart: {len(REFUSED)} kinds of values that cannot work are refused")


def check_validators(documents):
    """That what validates can refuse: an unknown key in each kind."""
    for kind, document in {document["kind"]: document for document in documents}.items():
        broken = json.loads(json.dumps(document))
        broken.get("spec", broken)["notAKey"] = 1
        try:
            validate(broken)
        except jsonschema.ValidationError:
            continue
        sys.exit(f"the schema of {kind} takes any key")


def main(folder):
    with Chart.load(CHART) as chart:
        files = sorted((CHART / "ci").glob("*-values.yaml"))
        values = {path.name.removesuffix("-values.yaml"): yaml.safe_load(path.read_text()) for path in files}
        rendered = {name: check(chart, name, given, folder) for name, given in values.items()}
        check_validators(document for documents in rendered.values() for document in documents)
        check_refusals(chart, values)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

#!/usr/bin/env python3
"""Every metric, label, problem code and log line that alerts, the dashboard and docs name is in the source, and every metric
of the source is in docs/LOGGING.md and in a panel of the dashboard or an alert.

    names.py RULES    also writes the dashboard's expressions to the file RULES, as rules that promtool can read
"""
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "deploy/helm/tributary/files"
FAILURES = ROOT / "docs/operations/failures.md"
# What Prometheus adds, and its own `up`.
ADDED, OWN = {"job", "instance", "le"}, {"up": set()}
wrong = []


def source():
    """All our Rust, with texts that go over several lines joined as the compiler joins them."""
    files = [path for path in ROOT.glob("*/src/**/*.rs") if path.parts[-2] != "tests" and path.name != "tests.rs"]
    return {path: re.sub(r"\\\n\s*", "", path.read_text()) for path in files}


def metrics(texts):
    """Name to kind and labels."""
    found = {}
    for text in texts.values():
        for use in re.finditer(r'metrics::(counter|gauge|histogram)!\(\s*"(\w+)"([^;]*?)\)\s*(?:\.(?:increment|set|record)\(|;|,?\s*[\]}]|,\s*(?=\w+:))', text):
            kind, name, rest = use.groups()
            labels = set(re.findall(r'"(\w+)"\s*=>', rest))
            if found.setdefault(name, (kind, labels)) != (kind, labels) and labels:
                found[name] = (kind, found[name][1] | labels)
    return found


def series(known):
    """The names that Prometheus sees, with their labels."""
    seen = dict(OWN)
    for name, (kind, labels) in known.items():
        for ending in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            seen[name + ending] = labels
    return seen


def check_expression(place, text, seen):
    for name in set(re.findall(r"\btributary_\w+", text)) - seen.keys():
        wrong.append(f"{place}: no series is called {name}")
    here = set().union(*(seen[name] for name in seen if re.search(rf"\b{name}\b", text)), ADDED)
    for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*[=!]~?", matchers):
            if label not in seen.get(name, set()) | ADDED:
                wrong.append(f"{place}: {name} has no label {label}")
    for labels in re.findall(r"\bby \(([^)]*)\)", text):
        for label in filter(None, re.split(r"[,\s]+", labels)):
            if label not in here:
                wrong.append(f"{place}: nothing in `{text}` has the label {label}")


def expressions(dashboard):
    """(where, text) of every expression in a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']!r}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", re.sub(r"^label_values\((.*), *\w+\)$", r"\1", variable["query"])


def failures():
    """Failure to the cells of its metrics and of its log lines."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in FAILURES.read_text().splitlines() if line.startswith("| ")]
    return {row[0].strip(): (row[1], row[2]) for row in cells if len(row) == 4 and row[0].strip() != "Failure"}


def check_failures(rows, texts, seen):
    """Metrics, codes and log lines of failures.md; how many of the latter there are."""
    joined, told = "\n".join(texts.values()), 0
    codes = set(re.findall(r'=> "([a-z-]+)", \d{3}, "', texts[ROOT / "wire/src/problem.rs"]))
    reasons = set(re.findall(r'^        \w+ = "([a-z_]+)",$', texts[ROOT / "federation/src/round.rs"], re.M))
    for failure, (metric, line) in rows.items():
        for text in re.findall(r"`(tributary_[^`]+)`", metric):
            check_expression(failure, text, seen)
            for label, values in re.findall(r'(code|reason)=~?"([^"]+)"', text):
                for value in set(values.split("\\|")) - {"code": codes, "reason": reasons}[label]:
                    wrong.append(f"{failure}: there is no {label} {value}")
        for text in re.findall(r"`([^`]+)`", line):
            told += 1
            is_field = re.fullmatch(r"[a-z_]+", text) and re.search(rf"\b{text}\b", joined)
            if text not in codes and not is_field and (len(text) < 10 or text not in joined):
                wrong.append(f"{failure}: nothing in the source says `{text}`")
    table = re.search(r"^\| Reason of .*?\n\n", FAILURES.read_text(), re.M | re.S).group(0).strip().splitlines()[2:]
    for reason in reasons ^ {reason for row in table for reason in re.findall(r"`(\w+)`", row.split("|")[1])}:
        wrong.append(f"{FAILURES.relative_to(ROOT)}: the reason {reason} is only there, or only in federation/src/round.rs")
    return told


def main(rules):
    texts = source()
    known = metrics(texts)
    if len(known) < 20:
        wrong.append(f"only {len(known)} metrics were found in the source: this check no longer reads it")
    seen = series(known)

    tests = (ROOT / "deploy/checks/alerts.test.yaml").read_text()
    alerts = yaml.safe_load((FILES / "alerts.yaml").read_text())
    rows = failures()
    for rule in (rule for group in alerts["groups"] for rule in group["rules"]):
        check_expression(rule["alert"], rule["expr"], seen)
        if rule["annotations"]["failure"] not in rows:
            wrong.append(f"{rule['alert']}: {FAILURES.relative_to(ROOT)} has no row {rule['annotations']['failure']!r}")
        if not re.search(rf"alertname: {rule['alert']}\n +exp_alerts:\n +- exp_labels", tests):
            wrong.append(f"{rule['alert']}: no test shows it fire")
        if not re.search(rf"eval_time: \w+, alertname: {rule['alert']}\}}", tests):
            wrong.append(f"{rule['alert']}: no test shows it silent")

    checked = []
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    for place, text in expressions(dashboard):
        check_expression(place, text, seen)
        text = text.replace("$__rate_interval", "5m")
        text = re.sub(r"\$\w+", ".*", text)
        checked.append({"record": f"checked:{len(checked)}", "expr": text})
    pathlib.Path(rules).write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": checked}]}))

    c_functions = set(re.findall(r"\btributary_\w+", (ROOT / "client-sdk/ffi/include/tributary.h").read_text()))
    for page in [*ROOT.glob("docs/**/*.md"), ROOT / "deploy/README.md"]:
        for name in set(re.findall(r"`(tributary_\w+)", page.read_text())) - seen.keys() - known.keys() - c_functions:
            wrong.append(f"{page.relative_to(ROOT)}: no metric and no function of C is called {name}")
    listed = set(re.findall(r"`(tributary_\w+)`", (ROOT / "docs/LOGGING.md").read_text()))
    wrong.extend(f"docs/LOGGING.md does not list {name}" for name in sorted(known.keys() - listed))
    shown = " ".join([*(text for _, text in expressions(dashboard)), *(rule["expr"] for group in alerts["groups"] for rule in group["rules"])])
    for name in sorted(known):
        if not any(re.search(rf"\b{seen_as}\b", shown) for seen_as in series({name: known[name]}) if seen_as not in OWN):
            wrong.append(f"neither a panel of the dashboard nor an alert shows {name}")

    told = check_failures(rows, texts, seen | {name: labels for name, (_, labels) in known.items()})
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"names: {len(known)} metrics, {len(checked)} expressions of the dashboard, {told} log lines and codes are the source's")


if __name__ == "__main__":
    main(sys.argv[1])

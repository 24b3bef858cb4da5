"""Holds a running coordinator to the OpenAPI document that it serves (.ci/contract.sh).

The document must be valid. Then schemathesis makes requests of it, good ones and bad ones: with an operator's token, with one for a
single task, with the cookie of a browser, with a participant's certificate, with paths of its own and with those of real tasks. No answer may be a fault, and each must have a status, a
media type and a body that the document names. The same seed makes the same requests, but for the ids that the coordinator drew.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from http.client import HTTPSConnection
from ssl import create_default_context
from urllib.parse import urlsplit

import requests
from openapi_spec_validator import OpenAPIV31SpecValidator

FEWEST = 5000
SEED = 16

work = sys.argv[1]
server, ca, token = (os.environ[f"TRIBUTARY_{name}"] for name in ("SERVER", "CA", "TOKEN"))


def session():
    """Trusts the coordinator's authority, whatever the environment says."""
    made = requests.Session()
    made.trust_env, made.verify = False, ca
    return made


operator = session()
operator.headers["Authorization"] = f"Bearer {token}"


def get(path, **query):
    answer = operator.get(server + path, params=query, timeout=30)
    answer.raise_for_status()
    return answer


def answers():
    """How many requests were answered with each status, as the coordinator counts."""
    counts = {}
    for line in get("/metrics").text.splitlines():
        if found := re.match(r'tributary_requests_total\{.*status="(\d+)".*\} (\d+)', line):
            counts[found[1]] = counts.get(found[1], 0) + int(found[2])
    return counts


document = get("/openapi.json").json()
wrong = [str(error)[:2000] for error in OpenAPIV31SpecValidator(document).iter_errors()]
assert not wrong, wrong
operations = [(path, method) for path, item in document["paths"].items() for method in item]
print(f"the document is valid: {len(operations)} operations")


def enrolled():
    """A participant that OpenSSL knows: files with its certificate and key, and its id."""
    key, request, certificate = (f"{work}/fuzzer.{ending}" for ending in ("key", "csr", "pem"))
    subprocess.run(
        ["openssl", "req", "-new", "-newkey", "ed25519", "-nodes", "-subj", "/CN=fuzzer"]
        + ["-keyout", key, "-out", request],
        check=True,
        capture_output=True,
    )
    secret = operator.post(f"{server}/v1/enrollment-tokens", json={}, timeout=30).json()["token"]
    body = {"token": secret, "csr_pem": open(request).read(), "name": "fuzzer"}
    answer = session().post(f"{server}/v1/enroll", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    open(certificate, "w").write(answer.json()["certificate_pem"])
    return certificate, key, answer.json()["participant"]


certificate, key, participant = enrolled()
tasks = {task["name"]: task["id"] for task in get("/v1/tasks").json()["items"]}
rounds = get("/v1/tasks/demo/rounds").json()["items"]
assert len(rounds) == 2 and "waiting" in tasks, (rounds, tasks)

# Valid is what the schemas say; what they cannot say is answered with 422 (or 410, 412: of what is there), and not with 400. But the
# schemas of tasks and check-ins are looser than what is read: of variants' further keys, and of base64; and bytes that a participant puts
# are no message of the protocol.
VALID = '["2xx", "3xx", 401, 403, 404, 409, 410, 412, 422, 429'
CHECKS = f"""
[checks.positive_data_acceptance]
expected-statuses = {VALID}]

[[operations]]
include-name = ["POST /v1/tasks", "POST /v1/check-in"]
checks.positive_data_acceptance.expected-statuses = {VALID}, 400]

[[operations]]
include-method = "PUT"
checks.positive_data_acceptance.expected-statuses = {VALID}, 400]
"""
KNOWN = f"""
[parameters]
"path.task" = "{tasks["demo"]}"
"path.round" = 1
"path.version" = 1
"path.participant" = "{participant}"
"""
# Streams do not end, so they are read below.
STREAMS = ["/v1/events", "/v1/tasks/{task}/events"]
# The token that all this is done with must stay, so tokens are revoked on their own, by another.
REVOKE = "/v1/operator-tokens/{token}/revoke"
# Headers of the dashboard's own requests, without which a cookie is not accepted.
OF_DASHBOARD = [("tributary-request", "dashboard"), ("sec-fetch-site", "same-origin")]
SIGN_OUT = document["paths"]["/v1/sign-ins/current"]["delete"]["operationId"]


def fuzz(name, config, examples, *arguments, **variables):
    """Runs schemathesis over the operations that `arguments` choose, with `variables` in its environment."""
    path, before = f"{work}/{name}.toml", answers()
    with open(path, "w") as file:
        file.write(config)
    command = [f"{work}/venv/bin/st", "--config-file", path, "run", f"{server}/openapi.json", "--tls-verify", ca]
    command += ["--seed", str(SEED), "--generation-deterministic", "--workers", "1"]
    command += ["--max-examples", str(examples), "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
    command += ["--checks", "all", "--warnings", "off", "--request-timeout", "60", "--no-color", *arguments]
    environment = {**os.environ, "REQUESTS_CA_BUNDLE": ca, "SCHEMATHESIS_HOOKS": "contract_hooks", "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)), **variables}
    start = time.monotonic()
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    made = {status: count - before.get(status, 0) for status, count in answers().items()}
    strange = made.get("401", 0)
    print(f"{name}: {sum(made.values())} requests in {time.monotonic() - start:.0f} s, {strange} of 401")
    assert 2 * strange < sum(made.values()), f"{name}: most of the requests were nobody's"
    if done.returncode:
        print(done.stdout[-30000:], done.stderr[-3000:])
    return done.returncode == 0


bearer = ["--header", f"Authorization: Bearer {token}"]
apart = [part for path in [*STREAMS, REVOKE] for part in ("--exclude-path", path)]
by_certificate = [path for path, item in document["paths"].items() if any("certificate" in way for of in item.values() for way in of.get("security", []))]
of_participants = [part for path in by_certificate for part in ("--include-path", path)]
identity = ["--request-cert", certificate, "--request-cert-key", key]
good = fuzz("an operator, anywhere", CHECKS, 10, *bearer, *apart)
# Before an operator has revoked it. Its identity is the connection's, so no request of it is without.
good &= fuzz("a participant", KNOWN + CHECKS, 10, *identity, *of_participants, "--exclude-checks", "ignored_auth")
good &= fuzz("an operator, at real tasks", KNOWN + CHECKS, 10, *bearer, *apart, "--include-path-regex", "[{]")


def admin(name):
    """A new admin token: its id and its secret."""
    answer = operator.post(f"{server}/v1/operator-tokens", json={"name": name, "role": "admin"}, timeout=30)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], answer.json()["token"]


def is_known(secret):
    """Whether a token is worth anything."""
    return session().get(f"{server}/v1/tasks", headers={"Authorization": f"Bearer {secret}"}, timeout=30).status_code == 200


def scoped(name, *names):
    """A new operator's token for these tasks alone: its secret."""
    body = {"name": name, "role": "operator", "tasks": list(names)}
    answer = operator.post(f"{server}/v1/operator-tokens", json=body, timeout=30)
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


def signed_in(secret):
    """The cookie that a browser has after a sign-in with this token, as the header of a request."""
    answer = session().post(f"{server}/v1/sign-ins", json={"token": secret}, headers=dict(OF_DASHBOARD), timeout=30)
    assert answer.status_code == 201, answer.text
    return "; ".join(f"{cookie.name}={cookie.value}" for cookie in answer.cookies)


# Tokens for one task: at that task, at another one, and at routes that belong to no task.
header = ["--header", f"Authorization: Bearer {scoped('demo-alone', 'demo')}"]
good &= fuzz("a token for one task, at it", KNOWN + CHECKS, 4, *header, *apart, "--include-path-regex", "[{]")
header = ["--header", f"Authorization: Bearer {scoped('waiting-alone', 'waiting')}"]
good &= fuzz("a token for another task", KNOWN + CHECKS, 2, *header, *apart)
# A browser. It must not sign itself out; each of its requests has the cookie, so none lacks authentication.
browser = admin("browser")[1]
dashboard = [part for pair in OF_DASHBOARD for part in ("--header", ": ".join(pair))]
dashboard += ["--exclude-operation-id", SIGN_OUT, "--exclude-checks", "ignored_auth"]
good &= fuzz("a browser that is signed in", KNOWN + CHECKS, 4, *dashboard, *apart, CONTRACT_COOKIE=signed_in(browser))

# Ids that are made up, and one of a token that was made to be revoked.
(_, revoker), (thrown_away, worthless) = admin("revoker"), admin("thrown-away")
revoking = ["--header", f"Authorization: Bearer {revoker}", "--include-path", REVOKE]
assert is_known(worthless)
good &= fuzz("revoking, any token", CHECKS, 25, *revoking)
assert is_known(worthless)
good &= fuzz("revoking, a real token", f'[parameters]\n"path.token" = "{thrown_away}"\n{CHECKS}', 10, *revoking)
assert not is_known(worthless) and is_known(revoker) and is_known(token)

# Streams: the head of each answer, and its first bytes where it is one.
draw = random.Random(SEED)
for _ in range(100):
    path, task = draw.choice(STREAMS), draw.choice(["demo", "waiting", "nobody", "%00", "é"])
    query = {"after": draw.choice(["0", "1", "99999999", "-1", "x", ""]), "kind": draw.choice(["task_paused", "a,b", "", ","])}
    chosen = {name: value for name, value in query.items() if draw.random() < 0.5}
    with operator.get(server + path.replace("{task}", task), params=chosen, stream=True, timeout=30) as answer:
        described = document["paths"][path]["get"]["responses"].get(str(answer.status_code))
        media = answer.headers["content-type"].split(";")[0]
        assert described and media in described["content"], (path, chosen, answer.status_code, media)
        if answer.status_code == 200:
            assert next(answer.iter_content(64)).startswith(b"retry: "), path

# A body that says that it is larger than any may be; it is answered before it is sent.
connection = HTTPSConnection(urlsplit(server).netloc, context=create_default_context(cafile=ca), timeout=30)
connection.putrequest("POST", "/v1/tasks")
for header, value in (("authorization", f"Bearer {token}"), ("content-type", "application/json"), ("content-length", str(2 << 20))):
    connection.putheader(header, value)
connection.endheaders()
assert connection.getresponse().status == 413

counts = answers()
made = sum(counts.values())
print(f"{made} requests: " + ", ".join(f"{count} of {status}" for status, count in sorted(counts.items())))
faults = {status: count for status, count in counts.items() if status >= "500"}
assert not faults, f"{faults} answers say that the coordinator is at fault"
assert not re.search(r"^tributary_faults_total [1-9]", get("/metrics").text, re.MULTILINE), "the coordinator counted a fault"
assert made >= FEWEST, f"only {made} requests, of at least {FEWEST}"
sys.exit(0 if good else 1)

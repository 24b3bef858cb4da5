"""Uses a client that openapi-python-client generated from the served document (.ci/contract.sh), as somebody would who has nothing but
that: it lists, creates, watches and fetches. Nothing here reads JSON by itself: a list whose items are another list's would fail."""

import hashlib
import os
import ssl
import sys

work = sys.argv[1]
sys.path.insert(0, work)

from client import AuthenticatedClient  # noqa: E402
from client.api.default import (  # noqa: E402
    cancel_task,
    create_enrollment_token,
    create_task,
    get_presets,
    get_task,
    get_task_model_parameters,
    get_task_round,
    list_audit,
    list_operator_tokens,
    list_participants,
    list_task_models,
    list_task_round_assignments,
    list_task_rounds,
    list_tasks,
)
from client.models import CreateEnrollmentToken, CreateTask, Problem, RoundState, TaskStatus  # noqa: E402

server, ca, token = (os.environ[f"TRIBUTARY_{name}"] for name in ("SERVER", "CA", "TOKEN"))
client = AuthenticatedClient(base_url=server, token=token, verify_ssl=ssl.create_default_context(cafile=ca))


def call(operation, *path, **given):
    answer = operation.sync_detailed(*path, client=client, **given)
    assert answer.status_code < 300 and not isinstance(answer.parsed, Problem), (operation.__name__, answer)
    return answer.parsed


def listed(operation, *path, **given):
    """All items of a list, page by page."""
    items, cursor = [], {}
    while True:
        page = call(operation, *path, limit=2, **cursor, **given)
        items += page.items
        if not page.next_cursor:
            return items
        cursor = {"cursor": page.next_cursor}


# Lists: each has items of its own.
tasks = {task.name: task for task in listed(list_tasks)}
assert {"demo", "waiting"} <= tasks.keys(), tasks
assert [task.name for task in listed(list_tasks, state="COMPLETED")] == ["demo"]
rounds = listed(list_task_rounds, "demo")
assert [(one.number, one.state) for one in rounds] == [(2, RoundState.COMPLETED), (1, RoundState.COMPLETED)], rounds
models = listed(list_task_models, "demo")
assert [one.version for one in models] == [2, 1, 0], models
assert len(listed(list_participants)) >= 3 and all(one.name for one in listed(list_participants))
assert len(listed(list_task_round_assignments, "demo", 2)) == 3
assert listed(list_operator_tokens)[0].role and listed(list_audit)[0].kind
assert "private" in {preset.name for preset in call(get_presets).items}

# Create: the task that is there, by another name.
spec = call(get_task, "waiting").spec
spec.name = "generated"
made = call(create_task, body=CreateTask(spec=spec), idempotency_key="generated")
assert (made.name, made.status) == ("generated", TaskStatus.ACTIVE), made
again = create_task.sync_detailed(client=client, body=CreateTask(spec=spec))
assert again.status_code == 409 and isinstance(again.parsed, Problem), again
spec.rounds.count = 0
wrong = create_task.sync_detailed(client=client, body=CreateTask(spec=spec))
assert wrong.status_code == 422 and wrong.parsed.errors[0].field == "rounds.count", wrong
assert call(create_enrollment_token, body=CreateEnrollmentToken()).token

# Watch: the round that waits is told when the wait is over, or when it leaves the state.
watched = call(get_task_round, "generated", 1, after_state=RoundState.SELECTING, wait_ms=500)
assert watched.state == RoundState.SELECTING, watched
assert call(cancel_task, "generated").status == TaskStatus.CANCELLED
watched = call(get_task_round, "generated", 1, after_state=RoundState.SELECTING, wait_ms=20000)
assert watched.state == RoundState.CANCELLED, watched

# Fetch: the bytes are those whose digest was listed.
file = call(get_task_model_parameters, "demo", models[0].version)
assert hashlib.sha256(file.payload.read()).hexdigest() == models[0].sha256
print(f"a generated client lists, creates, watches and fetches: {len(tasks)} tasks, {len(rounds)} rounds, {len(models)} models")

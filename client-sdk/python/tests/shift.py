"""Adds a number to every parameter: the participant in Python of `.ci/sdks.sh`, like `client-sdk/ffi/tests/c/shift.c`.

shift.py OPTIONS.json NUMBER [MOMENT]

With TRIBUTARY_DRIVEN in its environment it drives the participant itself.
"""

import json
import os
import signal
import sys
import time

import numpy as np
import tributary as tb

with open(sys.argv[1]) as file:
    options = json.load(file)
number = np.float32(sys.argv[2])
moment = sys.argv[3] if len(sys.argv) > 3 else None
options["checkpoint_every"] = options.pop("checkpoint_every_ms") / 1000


def die_at(now, _=None):
    if now == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def train(task):
    whole = np.concatenate([array.ravel() for array in task.parameters.values()])
    half = whole.size // 2
    saved = task.checkpoint
    if saved is None:
        whole[:half] += number
        task.save_checkpoint(whole.tobytes())
    else:
        whole = np.frombuffer(saved, "<f4").copy()
        print("python: goes on from its checkpoint", file=sys.stderr)
    die_at("middle")
    whole[half:] += number
    start = 0
    for array in task.parameters.values():
        array[...] = whole[start : start + array.size].reshape(array.shape)
        start += array.size
    task.send(task.parameters, examples=10)
    die_at("answered")


def drive(settings):
    me = tb.machine(**settings)
    while not (todo := me.tick()).is_over:
        if todo.is_performed:
            me.perform(train)
        else:
            time.sleep(0.02)  # earlier than it says does no harm
    print(json.dumps(me.privacy_spent))


def take_part(settings):
    with tb.participant(**settings) as me:
        for task in me.tasks():
            train(task)
            print("python: handed in", file=sys.stderr)
        print(json.dumps(me.privacy_spent))


work = drive if "TRIBUTARY_DRIVEN" in os.environ else take_part
work({"server": options.pop("server"), "ca": options.pop("ca_pem"), "on_event": die_at, **options})

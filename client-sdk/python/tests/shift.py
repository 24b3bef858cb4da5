"""Adds a number to every parameter: the participant in Python of `.ci/sdks.sh`, like `client-sdk/ffi/tests/c/shift.c`.

shift.py OPTIONS.json NUMBER
"""

import json
import sys

import tributary as tb

with open(sys.argv[1]) as file:
    options = json.load(file)
number = float(sys.argv[2])
with tb.participant(options.pop("server"), ca=options.pop("ca_pem"), **options) as me:
    for task in me.tasks():
        for array in task.parameters.values():
            array += number
        task.send(task.parameters, examples=10)
        print("python: handed in", file=sys.stderr)
    print(json.dumps(me.privacy_spent))

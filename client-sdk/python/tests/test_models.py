"""Using the model, going on with a training, and the device's conditions, against a real coordinator."""

import json
import subprocess
import sys
import time
import unittest

import numpy as np
import tributary as tb
from federation import each, federation, line

GOOD = {"charging": True, "unmetered": True, "idle": True, "thermal": "nominal"}


def add(task, amount=1.0):
    return task.send([array + amount for array in task.parameters.values()], examples=1)


class Models(unittest.TestCase):
    def test_the_last_model_is_used_offline(self):
        with federation() as running:
            running.operator.create(line("digits"))
            kept = {}
            options = [running.options(f"p{index}", task="digits") for index in range(3)]

            def take_part(index):
                with tb.participant(**options[index]) as me:
                    self.assertIsNone(me.model("digits"))
                    for task in me.tasks():
                        add(task, index + 1)
                    kept[index] = (me.model("digits"), me.models, me.data_use)

            each(take_part, range(3))
        # The coordinator is gone.
        with tb.participant(**options[0]) as me:
            model = me.model("digits")
            self.assertIsNone(me.model("another"))
            with self.assertRaisesRegex(tb.JournalError, "in use"):
                tb.Model.load("digits", options[0]["journal"])
        self.assertEqual(tb.Model.load("digits", options[0]["journal"]).sha256, model.sha256)
        for found in [model, *(model for model, _, _ in kept.values())]:
            # The last version, which two rounds made: each adds the mean of 1, 2 and 3, but for quantization.
            self.assertEqual((found.version, found.is_personalized, found.parameters["w"].shape), (2, False, (2, 3)))
            np.testing.assert_allclose(found["w"], 4.0, atol=1e-4)
            self.assertEqual(len(found.sha256), 64)
            with self.assertRaisesRegex(tb.Error, "none of the SDK's own"):
                found.scores([[0.0]])
        for _, models, used in kept.values():
            self.assertEqual(models, ["digits"])
            self.assertGreater(used["sent"], 1000)
            self.assertGreater(used["received_today"], 1000)

    def test_a_training_goes_on_from_its_checkpoint_after_a_kill(self):
        with federation() as running:
            running.operator.create(line("killed", rounds=1))
            options = {**running.options("killed", task="killed"), "checkpoint_every": 0.0}
            options["journal"] = str(options["journal"])
            program = (
                "import json, os, sys, tributary as tb\n"
                "for task in tb.participant(**json.loads(sys.argv[1])).tasks():\n"
                "    print(task.checkpoint)\n"
                "    if sys.argv[2] == 'die':\n"
                "        task.save_checkpoint(b'half')\n"
                "        os.kill(os.getpid(), 9)\n"
                "    task.send([array + 1 for array in task.parameters.values()], examples=1)\n"
            )

            def take_part(index):
                if index < 2:
                    with tb.participant(**running.options(f"p{index}", task="killed")) as me:
                        for task in me.tasks():
                            add(task)
                    return
                command = [sys.executable, "-u", "-c", program, json.dumps(options)]
                died = subprocess.run([*command, "die"], capture_output=True, text=True)
                self.assertEqual((died.returncode, died.stdout), (-9, "None\n"))
                lived = subprocess.run([*command, "live"], capture_output=True, text=True)
                self.assertEqual((lived.returncode, lived.stdout), (0, "b'half'\n"), lived.stderr)

            each(take_part, range(3))
            self.assertEqual(running.operator.rounds("killed")[0]["reported"], 3)

    def test_a_paused_task_comes_again_with_its_checkpoint(self):
        with federation() as running:
            running.operator.create(line("paused", rounds=1))

            def take_part(index):
                with tb.participant(**running.options(f"p{index}", task="paused", max_model_bytes=1000)) as me:
                    for task in me.tasks():
                        if index == 0 and task.checkpoint is None:
                            with self.assertRaisesRegex(tb.UpdateError, "its limit is 4000"):
                                task.save_checkpoint(bytes(5000))
                            task.save_checkpoint(b"half")
                            me.pause()
                            while not task.is_overdue:
                                time.sleep(0.01)
                            self.assertFalse(add(task), "it was taken back")
                            me.resume()
                            continue
                        self.assertEqual(task.checkpoint, b"half" if index == 0 else None)
                        add(task)

            each(take_part, range(3))
            self.assertEqual(running.operator.rounds("paused")[0]["reported"], 3)

    def test_a_data_cap_holds_up_the_next_process_too_and_goes_on_when_it_is_raised(self):
        with federation() as running:
            running.operator.create(line("capped", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            # The first request is let through, and is more than this.
            capped = {"charging": False, "unmetered": False, "idle": False, "max_thermal": None, "max_bytes_per_day": 100}
            options = {**running.options("capped", task="capped", device_conditions=capped), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                while me.held_up is None:
                    time.sleep(0.01)
                self.assertEqual(me.held_up[0], "data_cap")
                used = me.data_use
            self.assertGreater(used["sent_today"] + used["received_today"], 100)
            with tb.participant(**options) as me:
                while me.held_up is None:
                    time.sleep(0.01)
                self.assertEqual((me.held_up[0], me.data_use), ("data_cap", used))
            options["device_conditions"] = {**capped, "max_bytes_per_day": 10**9}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    add(task)
            self.assertEqual(running.operator.rounds("capped")[0]["reported"], 1)

    def test_conditions_hold_up_and_are_told(self):
        with federation() as running:
            running.operator.create(line("held", rounds=1))
            events = []

            def take_part(index):
                more = {"device_conditions": {"max_bytes_per_day": 10**9}, "on_event": lambda *event: events.append(event)} if index == 0 else {}
                with tb.participant(**running.options(f"p{index}", task="held", **more)) as me:
                    if index == 0:
                        while me.held_up is None:
                            time.sleep(0.01)
                        self.assertEqual(me.held_up, ("charging", "the device is not charging"))
                        self.assertEqual(me.data_use["sent"], 0)
                        me.set_device(**{**GOOD, "thermal": "critical"})
                        while me.held_up[0] != "thermal":
                            time.sleep(0.01)
                        me.set_device(**GOOD)
                    for task in me.tasks():
                        add(task)

            each(take_part, range(3))
            self.assertEqual([fields["condition"] for name, fields in events if name == "held_up"], ["charging", "thermal"])
            with self.assertRaises(tb.ConfigurationError):
                tb.participant(**running.options("q", device_conditions={"charged": True}))


if __name__ == "__main__":
    unittest.main()

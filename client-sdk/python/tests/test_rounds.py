"""Whole rounds under secure aggregation, by participants in Python, against a real coordinator."""

import asyncio
import dataclasses
import json
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import tributary as tb
from federation import SMALL, each, federation, line


class Rounds(unittest.TestCase):
    def test_the_sum_of_three_is_exact_and_all_are_counted(self):
        with federation() as running:
            running.operator.create(line("digits"))
            seen = {}

            def take_part(index):
                with tb.participant(**running.options(f"p{index}", task="digits")) as me:
                    for task in me.tasks():
                        seen.setdefault(task.round, []).append({name: array.copy() for name, array in task.parameters.items()})
                        self.assertEqual((task.plan.epochs, task.plan.learning_rate), (5, 0.05))
                        for array in task.parameters.values():
                            array += index + 1  # in place
                        task.send(task.parameters, examples=10, metrics={"accuracy": 0.5})
                    self.assertIsNotNone(me.id)

            each(take_part, range(3))
            task = running.operator.wait("digits")
            self.assertEqual(task["status"], "COMPLETED")
            rounds = running.operator.rounds("digits")
            self.assertEqual([round["number"] for round in rounds], [1, 2])
            for round in rounds:
                self.assertEqual(round["reported"], 3, round)
                self.assertAlmostEqual(round["metrics"]["accuracy"]["value"], 0.5, places=3)
            # The mean of 1, 2 and 3 in each round, but for quantization.
            for name, array in running.operator.model("digits").items():
                np.testing.assert_allclose(array, 4.0, atol=1e-4, err_msg=name)
            self.assertEqual(set(seen), {1, 2})
            np.testing.assert_allclose(seen[2][0]["w"], 2.0, atol=1e-4)
            self.assertEqual(seen[1][0]["w"].shape, (2, 3))

    def test_a_rust_participant_and_two_in_python_share_a_round(self):
        with federation() as running:
            binary = [running.process.args[0]]
            file = running.folder / "task.toml"
            subprocess.run([*binary, "demo", "--participants", "3", "--rounds", "2", "--seed", "5", "--task-file", file], check=True, stdout=subprocess.DEVNULL)
            with open(file, "a") as more:  # the last table of a task file may be written to
                more.write("\n")
            running.operator.create(file)
            rust = subprocess.Popen(
                [*binary, "participant", "run", "--participants", "3", "--seed", "5", "--index", "0", "--task", "demo", "--server", running.url, "--ca", running.ca]
                + ["--token", running.operator.enroll("rust"), "--min-cohort", "3", "--min-tolerated-colluders", "0", "--journal", running.folder / "rust"],
                stdout=subprocess.DEVNULL,
            )

            def take_part(index):
                with tb.participant(**running.options(f"p{index}", task="demo", examples=20)) as me:
                    for task in me.tasks():
                        self.assertEqual(task.architecture["kind"], "linear")
                        task.send([array + 0.25 for array in task.parameters.values()], examples=20)

            each(take_part, range(2))
            self.assertEqual(rust.wait(timeout=60), 0)
            for round in running.operator.rounds("demo"):
                self.assertEqual((round["state"], round["reported"]), ("COMPLETED", 3))

    def test_asyncio_gives_the_same_and_cancelling_loses_no_task(self):
        with federation() as running:
            running.operator.create(line("async", rounds=1))
            started = threading.Event()

            async def take_part(index):
                async with tb.participant(**running.options(f"p{index}", task="async")) as me:
                    tasks = me.tasks()
                    if index == 0:
                        # Given up while it waits: the next ask goes on from there.
                        with self.assertRaises(asyncio.TimeoutError):
                            await asyncio.wait_for(tasks.__anext__(), timeout=0.05)
                        started.set()
                    async for task in tasks:
                        task.send({name: array + 3 for name, array in task.parameters.items()}, examples=1)

            async def first():
                await take_part(0)

            def others():
                started.wait(60)
                each(lambda index: asyncio.run(take_part(index)), [1, 2])

            thread = threading.Thread(target=others)
            thread.start()
            asyncio.run(first())
            thread.join()
            np.testing.assert_allclose(running.operator.model("async")["b"], 3.0, atol=1e-4)

    def test_killed_in_the_middle_it_goes_on_with_its_journal(self):
        with federation() as running:
            running.operator.create(line("killed", rounds=2))
            options = running.options("killed", task="killed")
            options["journal"] = str(options["journal"])
            program = (
                "import json, os, sys, tributary as tb\n"
                "die = sys.argv[2] == 'die'\n"
                "for task in tb.participant(**json.loads(sys.argv[1])).tasks():\n"
                "    if die: os.kill(os.getpid(), 9)\n"
                "    task.send([array + 1 for array in task.parameters.values()], examples=1)\n"
            )

            def take_part(index):
                if index < 2:
                    with tb.participant(**running.options(f"p{index}", task="killed")) as me:
                        for task in me.tasks():
                            task.send([array + 1 for array in task.parameters.values()], examples=1)
                    return
                command = [sys.executable, "-c", program, json.dumps(options)]
                self.assertEqual(subprocess.run([*command, "die"]).returncode, -9)
                self.assertEqual(subprocess.run([*command, "live"]).returncode, 0)

            each(take_part, range(3))
            self.assertEqual(running.operator.wait("killed")["status"], "COMPLETED")
            np.testing.assert_allclose(running.operator.model("killed")["b"], 2.0, atol=1e-4)

    def test_a_loop_outlives_a_task_that_came_too_late(self):
        # No deadline may be shorter than a poll.
        with federation(TRIBUTARY_HTTP_POLL_MAX_MS="500") as running:
            spec = line("late", cohort=1, secure_aggregation={"enabled": False})
            spec["rounds"]["collect_deadline_ms"] = 2000
            running.operator.create(spec)
            options = {**running.options("late", task="late"), "secure_aggregation": {"required": False}}
            came = []
            with tb.participant(**options) as me:
                for task in me.tasks():
                    late = not came
                    while late and not task.is_overdue:
                        time.sleep(0.01)
                    if late:
                        self.assertFalse(task.save_checkpoint(b"late"))
                    came.append((task.round, task.send([array + 1 for array in task.parameters.values()], examples=1)))
                    if late:
                        with self.assertRaisesRegex(tb.Error, "answered before"):
                            task.fail("late")
            self.assertEqual(came[0], (1, False))
            self.assertEqual([round for round, counted in came if counted][-2:], [1, 2])
            self.assertEqual(running.operator.task("late")["status"], "COMPLETED")
            np.testing.assert_allclose(running.operator.model("late")["b"], 2.0, atol=1e-4)

    def test_what_it_refuses_is_told_with_the_reason_by_the_next_process_too(self):
        with federation() as running:
            running.operator.create(line("clear", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            options = running.options("strict", task="clear")
            with tb.participant(**options) as me:
                while not (told := me.refusals):
                    time.sleep(0.01)
            self.assertEqual((told[0]["round"], told[0]["code"], told[0]["times"]), (1, "policy", 1))
            self.assertIn("without secure aggregation", told[0]["reason"])
            with tb.participant(**options) as me:
                self.assertIn(told[0]["reason"], [one["reason"] for one in me.refusals])

    def test_the_plan_says_all_that_a_training_may_have_to_follow(self):
        with federation() as running:
            adamw = {"name": "adamw", "beta2": 0.99}
            more = {"weight_decay": 0.01, "proximal_mu": 0.5, "gradient_clip": 2.0, "accumulate": 2, "optimizer": adamw, "budget": {"steps": 3}}
            running.operator.create(
                line("asks", rounds=1, cohort=1, secure_aggregation={"enabled": False}, training={"epochs": 5, "learning_rate": 0.05, **more})
            )
            options = {**running.options("asks", task="asks"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                task = next(iter(me.tasks()))
                usual = tb.Plan(epochs=5, batch_size=32, learning_rate=0.05)
                asked = {"weight_decay": 0.01, "proximal_mu": 0.5, "gradient_clip": 2.0, "accumulate": 2}
                optimizer = tb.Optimizer("adamw", beta1=0.9, beta2=0.99, epsilon=1e-8)
                self.assertEqual(task.plan, dataclasses.replace(usual, **asked, optimizer=optimizer, more={"budget": {"steps": 3}}))
                self.assertEqual(usual.optimizer.name, "sgd")
                task.refuse("no AdamW here")
                while not me.refusals:
                    time.sleep(0.01)
                self.assertIn("no AdamW here", me.refusals[-1]["reason"])

    def test_events_and_spending_are_told(self):
        with federation() as running:
            running.operator.create(line("told", rounds=1))
            events = []

            def take_part(index):
                tell = (lambda name, fields: events.append((name, fields))) if index == 0 else None
                with tb.participant(**running.options(f"p{index}", task="told", on_event=tell)) as me:
                    for task in me.tasks():
                        task.send(task.parameters, examples=4)
                    self.assertEqual(me.examples, 4)
                    self.assertEqual(me.privacy_spent, [])
                    self.assertEqual(me.privacy_lifetime["limit"], 10.0)

            each(take_part, range(3))
            names = [name for name, _ in events]
            for name in ["lowered", "enrolled", "assigned", "fetched", "trained", "uploaded", "unmasked"]:
                self.assertIn(name, names)
            assigned = dict(events)["assigned"]
            self.assertEqual((assigned["round"], assigned["cohort"], assigned["secure_aggregation"]), (1, 3, True))


if __name__ == "__main__":
    unittest.main()

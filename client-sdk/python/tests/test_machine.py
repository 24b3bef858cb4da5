"""A participant that its caller drives, in this thread, against a real coordinator."""

import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import tributary as tb
from federation import federation, line

GOOD = {"charging": True, "unmetered": True, "idle": True, "thermal": "nominal"}
#: Whatever a machine may be asked, but for `perform`.
USES = (
    lambda me: me.tick(),
    lambda me: me.stop(),
    lambda me: me.id,
    lambda me: me.held_up,
    lambda me: me.privacy_spent,
    lambda me: me.privacy_lifetime,
    lambda me: me.refusals,
    lambda me: me.data_use,
    lambda me: me.model("forked"),
    lambda me: me.models,
)


class Machines(unittest.TestCase):
    def test_two_rounds_are_driven_by_hand(self):
        with federation() as running:
            running.operator.create(line("driven", rounds=2, cohort=1, secure_aggregation={"enabled": False}))
            events, asked, here = [], [], threading.get_ident()
            options = running.options("driven", task="driven", device_conditions={}, training_slice=0.01)
            options.update(secure_aggregation={"required": False}, on_event=lambda name, _: events.append((name, threading.get_ident())))
            me = tb.machine(**options)
            with self.assertRaisesRegex(tb.JournalError, "in use"):
                tb.machine(**options)
            self.assertFalse(me.perform(self.fail), "nothing was said")

            def train(task):
                self.assertEqual((threading.get_ident(), me.tick(**GOOD).what), (here, "busy"))
                asked.append((task.round, task.checkpoint))
                if asked == [(1, None)]:
                    task.save_checkpoint(b"half")
                    while not task.should_pause:
                        time.sleep(0.001)
                    return
                task.send([array + 1 for array in task.parameters.values()], examples=10)

            said = {}
            threads = threading.active_count()
            while not (todo := me.tick(**({} if said.get("wait_until", 0) < 3 else GOOD))).is_over:
                said[todo.what] = said.get(todo.what, 0) + 1
                if todo.is_performed:
                    self.assertTrue(me.perform(train))
                elif said["wait_until"] <= 3:
                    self.assertEqual(me.held_up, ("charging", "the device is not charging"))
                    self.assertEqual([todo.what, todo.until is None], ["wait_until", False])
                else:
                    time.sleep(0.02)  # earlier than it says does no harm
            self.assertEqual(threading.active_count(), threads)
            self.assertEqual(todo.what, "task_over")
            self.assertEqual(asked, [(1, None), (1, b"half"), (2, None)])
            self.assertEqual(set(said), {"send", "fetch", "train", "journal", "wait_until"})
            self.assertEqual({thread for _, thread in events}, {here})
            self.assertIn("uploaded", [name for name, _ in events])
            self.assertEqual(me.model("driven").version, 2)
            self.assertEqual((me.models, me.refusals, me.privacy_spent), (["driven"], [], []))
            self.assertEqual(me.privacy_lifetime["limit"], 10.0)
            self.assertGreater(me.data_use["sent"], 500)
            self.assertIsNotNone(me.id)
            self.assertEqual(running.operator.rounds("driven")[0]["reported"], 1)
            del me
        # Nobody runs, and the coordinator is gone.
        model = tb.Model.load("driven", options["journal"])
        self.assertEqual((model.version, model.parameters["w"].shape), (2, (2, 3)))
        np.testing.assert_allclose(model["b"], 2.0, atol=1e-4)
        self.assertIsNone(tb.Model.load("another", options["journal"]))

    def test_a_forked_child_is_told_and_harms_nobody(self):
        with federation() as running:
            running.operator.create(line("forked", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            options = {**running.options("forked", task="forked"), "secure_aggregation": {"required": False}}
            with tb.machine(**options) as me:

                def train(task):
                    child = os.fork()
                    if child == 0:
                        try:
                            for use in (*USES, lambda me: me.perform(self.fail), lambda _: task.fail("in the child")):
                                with self.assertRaisesRegex(tb.ClosedError, "belongs to the process that made it"):
                                    use(me)
                            me.close()
                            os._exit(0)
                        finally:
                            os._exit(1)
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
                    task.send([array + 1 for array in task.parameters.values()], examples=10)

                while not (todo := me.tick()).is_over:
                    if todo.is_performed:
                        self.assertTrue(me.perform(train))
                    else:
                        time.sleep(0.02)  # earlier than it says does no harm
                with self.assertRaisesRegex(tb.JournalError, "in use"):
                    tb.machine(**options)
            self.assertEqual(running.operator.rounds("forked")[0]["reported"], 1)

    def test_a_machine_that_is_closed_gives_the_journal_back_and_says_so(self):
        with federation() as running:
            options = running.options("closed")
            with tb.machine(**options) as me:
                for wrong in (float("nan"), -1.0, float("inf")):
                    with self.assertRaisesRegex(tb.ConfigurationError, "elapsed"):
                        me.tick(elapsed=wrong)
                with self.assertRaises(tb.ConfigurationError):
                    me.tick(thermal="hot")
                with self.assertRaisesRegex(tb.ConfigurationError, "charging"):
                    me.tick(charging={1})
                with self.assertRaisesRegex(tb.JournalError, "in use"):
                    tb.participant(**options)
            for use in (*USES, lambda me: me.perform(self.fail)):
                with self.assertRaisesRegex(tb.ClosedError, "was closed"):
                    use(me)
            me.close()
            with tb.machine(**options) as again:
                self.assertIsNot(again, me)
                with self.assertRaisesRegex(ZeroDivisionError, "an app's own"), again:
                    raise ZeroDivisionError("an app's own mistake")
                with tb.participant(**options):
                    pass

    def test_a_machine_that_is_closed_in_its_training_has_the_journal_until_that_returns(self):
        with federation() as running:
            running.operator.create(line("within", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            options = {**running.options("within", task="within", checkpoint_every=0.0), "secure_aggregation": {"required": False}}
            me, trained = tb.machine(**options), []

            def train(task):
                me.close()
                with self.assertRaises(tb.ClosedError):
                    me.tick()
                with self.assertRaisesRegex(tb.JournalError, "in use"):
                    tb.machine(**options)
                trained.append(task.save_checkpoint(b"half"))

            while not trained:
                if me.tick().is_performed:
                    self.assertTrue(me.perform(train))
                else:
                    time.sleep(0.02)  # earlier than it says does no harm
            self.assertEqual(trained, [True])
            with tb.machine(**options) as again:
                checkpoints = []

                def go_on(task):
                    checkpoints.append(task.checkpoint)
                    task.send(task.parameters, examples=1)

                while not (todo := again.tick()).is_over:
                    if todo.is_performed:
                        again.perform(go_on)
                    else:
                        time.sleep(0.02)  # earlier than it says does no harm
            self.assertEqual(checkpoints, [b"half"])

    def test_a_forked_child_that_forgets_the_machine_leaves_its_journal_locked(self):
        with federation() as running:
            options = running.options("forked")
            me = tb.machine(**options)
            child = os.fork()
            if child == 0:
                del me
                gc.collect()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            with self.assertRaisesRegex(tb.JournalError, "in use"):
                tb.machine(**options)
            del me
            tb.machine(**options)

    def test_a_forked_child_that_forgets_the_machine_leaves_the_connection_to_its_parent(self):
        with federation() as running:
            running.operator.create(line("shared", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            events, options = [], running.options("shared", task="shared")
            options.update(secure_aggregation={"required": False}, on_event=lambda name, _: events.append(name))
            me, forked = tb.machine(**options), 0

            def train(task):
                task.send([array + 1 for array in task.parameters.values()], examples=10)

            while not (todo := me.tick()).is_over:
                if not todo.is_performed:
                    time.sleep(0.02)  # earlier than it says does no harm
                    continue
                self.assertTrue(me.perform(train))
                if todo.what == "send":  # The connection waits for the next request.
                    forked += 1
                    child = os.fork()
                    if child == 0:
                        del me
                        gc.collect()
                        os._exit(0)
                    self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(todo.what, "task_over")
            self.assertGreater(forked, 2)
            self.assertIn("uploaded", events)
            self.assertNotIn("retry", events, "an answer was not heard")

    def test_killed_at_any_step_it_goes_on_with_its_journal(self):
        with federation() as running:
            running.operator.create(line("killed", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            given = running.options("killed", task="killed", checkpoint_every_ms=0)
            given.update(secure_aggregation={"required": False}, journal=str(given["journal"]), ca_pem=given.pop("ca"))
            (running.folder / "options.json").write_text(json.dumps(given))
            shift = [sys.executable, pathlib.Path(__file__).parent / "shift.py", running.folder / "options.json", "1"]
            moments = ["enrolled", "assigned", "fetched", "middle", "answered", "uploaded"]
            for moment in [*moments, None]:
                command = shift if moment is None else [*shift, moment]
                done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TRIBUTARY_DRIVEN": "1"})
                self.assertEqual(done.returncode, 0 if moment is None else -signal.SIGKILL, (moment, done.stderr))
                self.assertEqual("goes on from its checkpoint" in done.stderr, moment in ("answered", "uploaded"), (moment, done.stderr))
            self.assertEqual([round["reported"] for round in running.operator.rounds("killed")], [1])
            np.testing.assert_allclose(running.operator.model("killed")["w"], 1.0, atol=1e-4)

    def test_what_a_training_raises_is_raised_and_the_task_counts_as_failed(self):
        with federation() as running:
            running.operator.create(line("raises", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            me = tb.machine(**{**running.options("raises", task="raises"), "secure_aggregation": {"required": False}})
            kept = []

            def train(task):
                kept.append(task)
                raise ZeroDivisionError("an app's own mistake")

            while not kept:
                todo = me.tick()
                if todo.what == "train":
                    with self.assertRaisesRegex(ZeroDivisionError, "own mistake"):
                        me.perform(train)
                elif todo.is_performed:
                    me.perform(train)
            with self.assertRaisesRegex(tb.Error, "answered before"):
                kept[0].send(kept[0].parameters, examples=1)
            with self.assertRaises(TypeError):
                tb.machine(running.url, journals="elsewhere")
            me.stop()
            while not (todo := me.tick()).is_over:
                me.perform(train)
            self.assertEqual(todo.what, "stopped")

    def test_what_is_raised_after_a_checkpoint_fails_the_task_too(self):
        with federation() as running:
            running.operator.create(line("late", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
            options = {**running.options("late", task="late", training_slice=0.01), "secure_aggregation": {"required": False}}
            me = tb.machine(**options)

            def train(task):
                self.assertTrue(task.save_checkpoint(b"half"))
                while not task.should_pause:
                    time.sleep(0.001)
                raise ZeroDivisionError("an app's own mistake")

            while (todo := me.tick()).what != "train":
                if todo.is_performed:
                    me.perform(train)
                else:
                    time.sleep(0.02)  # earlier than it says does no harm
            with self.assertRaisesRegex(ZeroDivisionError, "own mistake"):
                me.perform(train)
            self.assertNotEqual(me.tick().what, "train", "it is called again")


if __name__ == "__main__":
    unittest.main()

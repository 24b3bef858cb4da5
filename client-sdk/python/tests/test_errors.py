"""What goes wrong, and what is said of it: typed errors, nothing sent, the task still open."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import tributary as tb
from federation import SMALL, federation, line


class Updates(unittest.TestCase):
    """One participant alone, whose task trains ahead of nothing: secure aggregation is off."""

    def setUp(self):
        self.context = federation()
        self.running = self.context.__enter__()
        self.running.operator.create(line("alone", rounds=1, cohort=1, secure_aggregation={"enabled": False}))
        options = self.running.options("alone", task="alone")
        options["secure_aggregation"] = {"required": False}
        self.me = tb.participant(**options)

    def tearDown(self):
        self.me.close()
        self.context.__exit__(None, None, None)

    def test_every_wrong_update_is_named_and_the_task_still_takes_a_right_one(self):
        task = next(iter(self.me.tasks()))
        right = {name: array.copy() for name, array in task.parameters.items()}
        nan = {**right, "w": np.array([[0, 0, 0], [0, np.nan, 0]], "f4")}
        for wrong, words in [
            ({"w": right["w"]}, "without 'b'"),
            ({**right, "c": right["b"]}, "with unknown 'c'"),
            ({**right, "w": right["w"].T}, r"\(3, 2\); the model's is \(2, 3\)"),
            ({**right, "b": np.zeros(2, "i8")}, "int64"),
            ({**right, "b": np.zeros(2, "c8")}, "complex64"),
            ({**right, "b": np.array(["a", "b"])}, "<U1"),
            ({**right, "b": np.array([1e300, 0.0])}, "tensor \"b\" has inf at position 0"),
            (nan, "tensor \"w\" has NaN at position 4"),
            ([right["w"]], "1 tensors; the model has 2"),
            (3, "not int"),
        ]:
            with self.assertRaisesRegex(tb.UpdateError, words):
                task.send(wrong, examples=1)
        for examples in [0, -1, 1.5, "1", True]:
            with self.assertRaises(tb.UpdateError):
                task.send(right, examples=examples)
        with self.assertRaisesRegex(tb.UpdateError, "accuracy"):
            task.send(right, examples=1, metrics={"accuracy": float("nan")})
        # Another byte order, more precision and no contiguity are all the same numbers.
        task.send({"w": np.full((3, 2), 0.5, ">f8").T, "b": np.full(4, 0.5, "f2")[::2]}, examples=3)
        with self.assertRaisesRegex(tb.Error, "answered before"):
            task.send(right, examples=1)
        np.testing.assert_allclose(self.running.operator.wait("alone")["model_version"], 1)
        np.testing.assert_allclose(self.running.operator.model("alone")["w"], 0.5, atol=1e-4)

    def test_a_task_may_be_answered_from_another_thread_and_after_the_end_is_overdue(self):
        task = next(iter(self.me.tasks()))
        self.me.close()
        self.assertTrue(task.is_overdue)
        failures = []

        def answer():
            try:
                task.send(task.parameters, examples=1)
            except tb.Overdue as error:
                failures.append(error)

        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
        self.assertEqual(len(failures), 1)
        self.me.close()
        with self.assertRaisesRegex(tb.ClosedError, "closed"):
            self.me.pause()
        with self.assertRaises(tb.ClosedError):
            next(iter(self.me.tasks()))

    def test_a_forked_child_is_told_and_harms_nobody(self):
        task = next(iter(self.me.tasks()))
        child = os.fork()
        if child == 0:
            try:
                self.me.id
            except tb.ClosedError:
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        task.send(task.parameters, examples=1)
        self.assertEqual(self.running.operator.wait("alone")["status"], "COMPLETED")

    def test_two_processes_on_one_journal_are_refused(self):
        program = "import sys, tributary as tb; tb.participant('https://localhost:1', journal=sys.argv[1], ca=sys.argv[2])"
        command = [sys.executable, "-c", program, self.running.folder / "alone", self.running.ca]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertIn("JournalError", done.stderr)
        self.assertIn("in use by another process", done.stderr)


class Starts(unittest.TestCase):
    def test_settings_that_make_no_participant(self):
        with tempfile.TemporaryDirectory() as folder:
            ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
            for options, error, words in [
                ({}, tb.ConfigurationError, "ca_pem"),
                ({"ca": f"{folder}/absent"}, tb.ConfigurationError, "absent"),
                ({"ca": ca, "token": "t"}, tb.ConfigurationError, "the CA cannot be used"),
                ({"ca": ca, "secure_aggregation": {"cohort": 3}}, tb.ConfigurationError, "unknown field `cohort`"),
                ({"ca": ca, "labels": {"region": 3}}, tb.ConfigurationError, "expected a string"),
                ({"ca": ca, "examples": -1}, tb.UpdateError, "examples"),
            ]:
                with self.assertRaisesRegex(error, words):
                    tb.participant("https://localhost:1", journal=f"{folder}/journal", **options)

    def test_a_token_that_is_none_ends_with_its_reason(self):
        with federation() as running:
            options = running.options("nobody")
            options["token"] = "no-token"
            with tb.participant(**options) as me, self.assertRaisesRegex(tb.EnrollmentError, "enrolment was refused"):
                list(me.tasks())
            del options["token"]
            options["journal"] = running.folder / "other"
            with self.assertRaisesRegex(tb.EnrollmentError, "not enrolled"):
                tb.participant(**options)

    def test_ctrl_c_ends_the_wait(self):
        with federation() as running:
            options = running.options("waiting")
            program = (
                "import sys, tributary as tb\n"
                "with tb.participant(sys.argv[1], ca=sys.argv[2], token=sys.argv[3], journal=sys.argv[4]) as me:\n"
                "    print('waiting', flush=True)\n"
                "    list(me.tasks())\n"
            )
            command = [sys.executable, "-c", program, options["server"], options["ca"], options["token"], options["journal"]]
            waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            waiting.stdout.readline()
            while waiting.poll() is None:
                # Until it has got as far as to wait, a signal may come too early to be seen.
                waiting.send_signal(signal.SIGINT)
                time.sleep(0.2)
            self.assertIn("KeyboardInterrupt", waiting.communicate()[1])

    def test_importing_is_quick_and_takes_no_numpy_along(self):
        program = "import sys, tributary; print('numpy' in sys.modules, 'pandas' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["False", "False"])


class Operators(unittest.TestCase):
    def test_what_is_refused_says_why(self):
        with federation() as running:
            wrong = line("wrong")
            wrong["training"]["learning_rate"] = -1
            with self.assertRaisesRegex(tb.Problem, "learning_rate") as caught:
                running.operator.create(wrong)
            self.assertEqual(caught.exception.status, 422)
            with self.assertRaises(tb.Problem) as caught:
                running.operator.task("nothing")
            self.assertEqual(caught.exception.status, 404)
            with self.assertRaises(tb.Problem) as caught:
                tb.Operator(running.url, "no-token", ca=running.ca).tasks()
            self.assertEqual(caught.exception.status, 401)
            self.assertEqual(running.operator.tasks(), [])
        with self.assertRaisesRegex(tb.Error, "cannot be reached"):
            running.operator.tasks()
        with self.assertRaisesRegex(tb.ConfigurationError, "https://"):
            tb.Operator("localhost:8443", "token")


if __name__ == "__main__":
    unittest.main()

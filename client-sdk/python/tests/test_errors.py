"""What goes wrong, and what is said of it: typed errors, nothing sent, the task still open."""

import json
import os
import pathlib
import shutil
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
from tributary.update import copy_into


class Unknown:
    """As a tensor of PyTorch in bfloat16, of which NumPy makes no array."""

    def __array__(self, *_, **__):
        raise TypeError("Got unsupported ScalarType BFloat16")


class Copies(unittest.TestCase):
    def test_arrays_of_the_model_may_change_their_places(self):
        flat = np.arange(4, dtype="f4")
        own = {"a": flat[:2], "b": flat[2:]}
        copy_into(flat, own, {"a": own["b"], "b": own["a"]})
        np.testing.assert_array_equal(flat, [2, 3, 0, 1])
        copy_into(flat, own, [own["a"][::-1], own["b"][:]])
        np.testing.assert_array_equal(flat, [3, 2, 0, 1])
        with self.assertRaises(tb.UpdateError):
            copy_into(flat, own, {"a": np.zeros(2), "b": np.zeros(3)})
        np.testing.assert_array_equal(flat, [3, 2, 0, 1], "nothing was copied")


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
            ({**right, "b": [[0.0], [0.0, 0.0]]}, "tensor 'b' is nothing"),
            ({**right, "b": Unknown()}, "BFloat16"),
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
                task.send(task.parameters, examples=1, strict=True)
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
            told = 0
            for use in (
                lambda: self.me.id,
                lambda: self.me.model("alone"),
                self.me.pause,
                lambda: next(iter(self.me.tasks())),
                lambda: task.send(task.parameters, examples=1),
                lambda: task.save_checkpoint(b"of the child"),
                lambda: task.fail("in the child"),
                lambda: task.refuse("in the child"),
            ):
                try:
                    use()
                except tb.ClosedError:
                    told += 1
            os._exit(0 if told == 8 and self.me.close() else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        task.send(task.parameters, examples=1)
        self.assertEqual(self.running.operator.wait("alone")["status"], "COMPLETED")

    def test_a_forked_child_that_lives_on_does_not_keep_the_journal(self):
        """As the worker of a DataLoader does."""
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        try:
            self.assertTrue(self.me.close())
            options = {"journal": self.running.folder / "alone", "ca": self.running.ca, "secure_aggregation": {"required": False}}
            self.me = tb.participant(self.running.url, token=self.running.operator.enroll("again"), **options)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_a_callback_that_raises_is_printed_and_one_that_blocks_holds_nobody_up(self):
        go_on, told = threading.Event(), []

        def blocks(name, _):
            told.append(name)
            if name == "assigned":
                go_on.wait(60)
            raise ZeroDivisionError("an app's own mistake")

        printed = []
        hook, sys.unraisablehook = sys.unraisablehook, printed.append
        self.addCleanup(setattr, sys, "unraisablehook", hook)
        self.me.close()
        options = {**self.running.options("blocks", task="alone"), "secure_aggregation": {"required": False}}
        me = tb.participant(**options, on_event=blocks)
        while "assigned" not in told:
            time.sleep(0.01)
        asker = threading.Thread(target=lambda: me.id)
        asker.start()
        time.sleep(0.1)  # It waits for the thread that the callback holds, and holds up nobody who closes.
        self.assertFalse(me.close(timeout=0.3), "the callback does not return")
        with self.assertRaises(tb.ClosedError):
            me.resume()
        del options["token"]
        with self.assertRaisesRegex(tb.JournalError, "in use"):
            tb.participant(**options)
        go_on.set()
        asker.join()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until the thread that was left behind has ended
            try:
                again = tb.participant(**options)
                break
            except tb.JournalError:
                time.sleep(0.05)
        self.assertTrue(again.close())
        self.assertEqual({type(found.exc_value) for found in printed}, {ZeroDivisionError})

    def test_no_callback_comes_once_it_is_closed(self):
        self.me.close()
        told = []
        options = {**self.running.options("told", task="alone"), "secure_aggregation": {"required": False}}
        me = tb.participant(**options, on_event=lambda name, _: told.append(name))
        next(iter(me.tasks()))
        self.assertTrue(me.close())
        threads = pathlib.Path("/proc/self/task")
        if threads.exists():
            self.assertNotIn("tributary", [(thread / "comm").read_text().strip() for thread in threads.iterdir()])
        last = list(told)
        # Whatever else goes on with the same journal.
        with tb.participant(**options) as again:
            for task in again.tasks():
                task.send(task.parameters, examples=1)
        self.assertIn("assigned", told)
        self.assertEqual(told, last)

    def test_a_damaged_journal_and_that_of_another_device_are_told(self):
        next(iter(self.me.tasks()))
        self.assertTrue(self.me.close())
        folder = self.running.folder
        options = {"journal": folder / "alone", "ca": self.running.ca, "secure_aggregation": {"required": False}}
        key = folder / "alone.key"
        own = key.read_bytes()
        key.write_bytes(own[:-1] + bytes([own[-1] ^ 1]))
        with self.assertRaisesRegex(tb.JournalError, "does not open"):
            tb.participant(self.running.url, **options)
        key.write_bytes(own)
        # Moved to another device without what says which state is the last.
        generation = folder / "alone.generation"
        last = generation.read_bytes()
        generation.unlink()
        with self.assertRaises(tb.JournalError):
            tb.participant(self.running.url, **options)
        generation.write_bytes(last)
        tb.participant(self.running.url, **options).close()
        # Of a newer version, which comes after the magic number.
        record = folder / "alone" / "identity.record"
        sealed = record.read_bytes()
        record.write_bytes(sealed[:16] + bytes([sealed[16] + 1]) + sealed[17:])
        for use in (tb.participant, tb.machine):
            with self.assertRaisesRegex(tb.JournalError, "update the app"):
                use(self.running.url, **options)
        record.write_bytes(sealed)
        tb.participant(self.running.url, **options).close()
        records = [path for path in (folder / "alone").rglob("*") if path.is_file() and path.stat().st_size > 100]
        for path in records:
            path.write_bytes(path.read_bytes()[:-20])
        with self.assertRaises(tb.JournalError):
            tb.participant(self.running.url, **options)
        with self.assertRaises(tb.JournalError):
            tb.Model.load("alone", folder / "alone")

    def test_a_journal_restored_from_a_copy_is_refused(self):
        task = next(iter(self.me.tasks()))
        journal, copy = self.running.folder / "alone", self.running.folder / "copy"
        shutil.copytree(journal, copy)
        task.send(task.parameters, examples=1)
        self.running.operator.wait("alone")
        self.assertTrue(self.me.close())
        latest = self.running.folder / "latest"
        journal.rename(latest)
        copy.rename(journal)
        options = {"journal": journal, "ca": self.running.ca, "secure_aggregation": {"required": False}}
        for use in (tb.participant, tb.machine):
            with self.assertRaisesRegex(tb.JournalError, "restored from a copy"):
                use(self.running.url, **options)
        with self.assertRaisesRegex(tb.JournalError, "restored from a copy"):
            tb.Model.load("alone", journal)
        shutil.rmtree(journal)
        latest.rename(journal)
        tb.participant(self.running.url, **options).close()

    def test_a_withdrawn_participant_has_a_statement_and_is_out(self):
        task = next(iter(self.me.tasks()))
        task.send(task.parameters, examples=1)
        self.running.operator.wait("alone")
        reached = {"journal": self.running.folder / "alone", "ca": self.running.ca}
        with self.assertRaisesRegex(tb.JournalError, "in use"):
            tb.withdraw(self.running.url, **reached)
        self.assertTrue(self.me.close())
        for _ in range(2):  # the first statement may get lost
            signed = tb.withdraw(self.running.url, **reached)
            statement = json.loads(signed["statement"])
            self.assertEqual([(task["name"], [round["version"] for round in task["rounds"]]) for task in statement["tasks"]], [("alone", [1])])
            self.assertEqual((sorted(signed), len(signed["signature"])), (["signature", "statement"], 128))
        with tb.participant(self.running.url, secure_aggregation={"required": False}, **reached) as me:
            with self.assertRaisesRegex(tb.EnrollmentError, "was revoked"):
                next(iter(me.tasks()))
        with self.assertRaisesRegex(tb.EnrollmentError, "is not enrolled"):
            tb.withdraw(self.running.url, **{**reached, "journal": self.running.folder / "empty"})
        with self.assertRaisesRegex(tb.ConfigurationError, "address of its coordinator"):
            tb.withdraw(**reached)

    def test_a_checkpoint_that_is_none_or_comes_too_late(self):
        task = next(iter(self.me.tasks()))
        for wrong in ["text", None, 3]:
            with self.assertRaises(TypeError):
                task.save_checkpoint(wrong)
        task.save_checkpoint(b"")
        self.assertEqual(task.checkpoint, b"")
        task.send(task.parameters, examples=1)
        self.running.operator.wait("alone")
        self.assertFalse(task.save_checkpoint(b"late"))
        with self.assertRaises(tb.Overdue):
            task.save_checkpoint(b"late", strict=True)

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
                # What a shell runs in the background ignores Ctrl-C from the start.
                "import signal, sys, tributary as tb\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
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

    def test_what_is_still_open_at_the_exit_is_closed_first(self):
        with federation() as running:
            options = running.options("open")
            program = (
                "import atexit, sys, time\n"
                "def after():\n"
                "    try:\n"
                "        me.pause()\n"
                "    except tb.ClosedError:\n"
                "        print('it was closed')\n"
                "atexit.register(after)  # Before the package's own, so it comes after it.\n"
                "import tributary as tb\n"
                "told = []\n"
                "me = tb.participant(sys.argv[1], ca=sys.argv[2], token=sys.argv[3], journal=sys.argv[4],\n"
                "    on_event=lambda name, fields: told.append(name))\n"
                "while not told:\n"
                "    time.sleep(0.01)\n"
            )
            command = [sys.executable, "-c", program, options["server"], options["ca"], options["token"], options["journal"]]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "it was closed\n", ""))

    def test_importing_is_quick_and_takes_along_what_participants_need(self):
        heavy = ["numpy", "pandas", "asyncio", "ssl", "http.client", "urllib.request"]
        program = (
            "import sys, time; begin = time.perf_counter(); import tributary; took = time.perf_counter() - begin\n"
            f"print(took, *[module for module in {heavy} if module in sys.modules])"
        )
        took = []
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
            seconds, *taken = done.stdout.split()
            self.assertEqual(taken, [])
            took.append(float(seconds))
        print(f"import tributary: {sorted(took)[2] * 1000:.0f} ms, the median of 5; at most 150 ms are wanted")


class Operators(unittest.TestCase):
    def test_a_participant_prints_what_it_waits_for(self):
        script = (
            "import sys, threading, time, tributary as tb\n"
            "options = eval(sys.argv[1])\n"
            "me = tb.participant(**options)\n"
            "threading.Timer(6.0, me.stop).start()\n"
            "list(me.tasks())\n"
        )
        with federation(TRIBUTARY_HTTP_POLL_MAX_MS="200") as running:
            running.operator.create(line("alone", cohort=3))
            said = {}
            for name, more in (("loud", {}), ("quiet", {"quiet": True})):
                options = {**running.options(name, task="alone", **more), "journal": str(running.folder / name)}
                ran = subprocess.run([sys.executable, "-c", script, repr(options)], capture_output=True, text=True, timeout=60)
                self.assertEqual((ran.returncode, ran.stdout), (0, ""), ran.stderr)
                said[name] = ran.stderr.splitlines()
            self.assertEqual(said["quiet"], [])
            self.assertRegex(said["loud"][0], r"^tributary \(alone\): enrolled as loud \(")
            self.assertRegex(said["loud"][1], r"^tributary \(alone\): waiting: task alone waits for [23] more participants")
            self.assertEqual(len(set(said["loud"])), len(said["loud"]), "no line comes twice")
            self.assertEqual(said["loud"][-1], "tributary (alone): stopped; the journal knows how to go on")

    def test_what_is_refused_says_why(self):
        with federation() as running:
            wrong = line("wrong")
            wrong["training"]["learning_rate"] = -1
            with self.assertRaisesRegex(tb.Problem, "learning_rate: must be") as caught:
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

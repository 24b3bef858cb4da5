"""Asks that are given up lose no task, and a participant is closed beside the event loop."""

import asyncio
import threading
import unittest
import unittest.mock

import tributary as tb
from federation import federation
from tributary.participant import _Ask


class Native:
    """Gives jobs one after the other, from the moment on that it may, and then its end."""

    def __init__(self, *jobs):
        self.jobs = list(jobs)
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()

    def next(self, seconds):
        self.is_asked.set()
        self.may_go_on.wait(60)
        return self.jobs.pop(0) if self.jobs else "stopped"

    def stop(self):
        pass

    def close(self, timeout):
        return True


class Asks(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch("tributary.participant.Task", side_effect=lambda job, _: job)
        patch.start()
        self.addCleanup(patch.stop)
        self.jobs = [object(), object(), object()]
        self.native = Native(*self.jobs)
        self.me = tb.Participant(self.native, 0)

    def test_what_a_cancelled_ask_finds_is_for_who_asks_next(self):
        async def give_up():
            ask = asyncio.ensure_future(self.me.tasks().__anext__())
            await asyncio.to_thread(self.native.is_asked.wait, 60)
            ask.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await ask
            self.assertEqual(len(self.me._kept), 0, "its thread still asks")
            self.native.may_go_on.set()

        asyncio.run(give_up())  # It waits for its threads.
        self.assertEqual(list(self.me.tasks()), self.jobs)

    def test_what_was_found_when_the_ask_was_cancelled_is_for_who_asks_next(self):
        self.native.may_go_on.set()
        first, second = _Ask(self.me), _Ask(self.me)
        for ask in (first, second):
            ask.look()
            ask.give_up()
            ask.give_up()
        self.assertEqual((first.found, list(self.me._kept)), (None, self.jobs[:2]))

        async def rest():
            return [task async for task in self.me.tasks()]

        self.assertEqual(asyncio.run(rest()), self.jobs, "in their order")
        self.assertIsNone(self.me.tasks()._kept())

    def test_the_end_and_an_error_are_not_kept(self):
        self.native.may_go_on.set()
        self.native.jobs = []
        ask = _Ask(self.me)
        ask.give_up()
        ask.look()
        self.assertEqual(len(self.me._kept), 0)
        with unittest.mock.patch.object(self.native, "next", side_effect=tb.EnrollmentError("revoked")):
            with self.assertRaisesRegex(tb.EnrollmentError, "revoked"):
                asyncio.run(self.me.tasks().__anext__())
        self.assertEqual(len(self.me._kept), 0)


class Closes(unittest.TestCase):
    def test_the_event_loop_goes_on_while_a_participant_is_closed(self):
        may_return, told = threading.Event(), threading.Event()

        def blocks(name, _):
            told.set()
            may_return.wait(60)

        async def take_part(options):
            async with tb.participant(**options, on_event=blocks) as me:
                await asyncio.to_thread(told.wait, 60)
                # The callback returns, and so does the close, if the loop gets to this.
                asyncio.get_running_loop().call_later(0.2, may_return.set)
            self.assertTrue(may_return.is_set())
            self.assertTrue(await me.aclose())
            with self.assertRaises(tb.ClosedError):
                me.pause()

        with federation() as running:
            asyncio.run(take_part(running.options("blocks")))
            # It has ended, so that the journal is free.
            with tb.participant(**running.options("blocks")) as me:
                self.assertIsNone(me.model("digits"))

    def test_a_close_goes_on_if_its_caller_is_cancelled(self):
        closed, begun = threading.Event(), threading.Event()
        native = Native()
        me = tb.Participant(native, 0)

        def close(timeout):
            begun.set()
            native.may_go_on.wait(60)
            closed.set()
            return True

        async def cancel():
            closing = asyncio.ensure_future(me.aclose())
            await asyncio.to_thread(begun.wait, 60)
            closing.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await closing
            native.may_go_on.set()

        with unittest.mock.patch.object(native, "close", side_effect=close):
            asyncio.run(cancel())
        self.assertTrue(closed.is_set())


if __name__ == "__main__":
    unittest.main()

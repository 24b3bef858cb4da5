"""What an operator makes of a task's rounds: frames, plots, and rounds as they end."""

import datetime
import time
import unittest
import unittest.mock

import tributary as tb
from federation import federation, installed, line

CLEAR = {"secure_aggregation": {"enabled": False}, "metrics": ["accuracy", "train_loss"]}


def take_part(running, name):
    options = {**running.options(name, task=name), "secure_aggregation": {"required": False}}
    with tb.participant(**options) as me:
        for task in me.tasks():
            task.send(task.parameters, examples=4, metrics={"accuracy": task.round / 4, "train_loss": 1 / task.round})


class Operators(unittest.TestCase):
    @installed("pandas")
    def test_rounds_as_a_frame(self):
        import pandas as pd

        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        with federation() as running:
            running.operator.create(line("framed", rounds=2, cohort=1, **CLEAR))
            running.operator.create(line("waiting", rounds=1))
            take_part(running, "framed")
            frame = running.operator.frame("framed")
            self.assertEqual((frame.index.name, list(frame.index)), ("number", [1, 2]))
            self.assertEqual(list(frame["metrics.accuracy.value"]), [0.25, 0.5])
            self.assertEqual(list(frame["state"]), ["COMPLETED", "COMPLETED"])
            times = [name for name in frame.columns if name.endswith("_at")]
            self.assertIn("ended_at", times)
            after = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
            for name in times:
                self.assertEqual(str(frame[name].dtype.tz), "UTC", name)
            self.assertTrue(frame["ended_at"].between(pd.Timestamp(before), pd.Timestamp(after)).all(), frame["ended_at"])
            self.assertTrue(frame["ended_at"].is_monotonic_increasing)
            while not running.operator.rounds("waiting"):
                time.sleep(0.01)
            waiting = running.operator.frame("waiting")
            self.assertEqual((list(waiting["state"]), str(waiting["ended_at"].dtype.tz)), (["SELECTING"], "UTC"))
            self.assertTrue(waiting["ended_at"].isna().all() and "metrics.accuracy.value" not in waiting.columns)
            with unittest.mock.patch.object(tb.Operator, "rounds", return_value=[]):
                self.assertTrue(running.operator.frame("waiting").empty)
            with self.assertRaises(tb.Problem):
                running.operator.frame("absent")

    @installed("pandas")
    def test_rounds_are_watched_as_frames(self):
        with federation() as running:
            running.operator.create(line("frames", rounds=2, cohort=1, **CLEAR))
            watch = running.operator.watch("frames", frame=True)
            take_part(running, "frames")
            seen = list(watch)
            # One or two looks, as it happens; every one shows all rounds so far.
            self.assertEqual([list(frame.index) for frame in seen][-1], [1, 2])
            self.assertTrue(all(len(frame) <= len(after) for frame, after in zip(seen, seen[1:])))
            self.assertTrue(seen[-1].equals(running.operator.frame("frames")))
            self.assertEqual(list(running.operator.watch("frames", frame=True)), [], "they ended before")

    def test_each_look_that_finds_an_end_is_a_frame_of_all_rounds(self):
        def at(*states):
            return [{"number": number, "attempt": 1, "state": state} for number, state in enumerate(states, 1)]

        looks = [at("COMPLETED"), at("COMPLETED", "COLLECTING"), at("COMPLETED", "FAILED", "SELECTING"), at("COMPLETED", "FAILED", "COMPLETED")]
        operator = tb.Operator("https://localhost:1", "token")
        frames = unittest.mock.patch("tributary.operator._frame", side_effect=lambda rounds: [round["state"] for round in rounds])
        for frame, told in [
            (False, [(2, "FAILED"), (3, "COMPLETED")]),
            (True, [["COMPLETED", "FAILED", "SELECTING"], ["COMPLETED", "FAILED", "COMPLETED"]]),
        ]:
            with (
                unittest.mock.patch.object(operator, "rounds", side_effect=looks),
                unittest.mock.patch.object(operator, "task", side_effect=[{"status": "ACTIVE"}] * 2 + [{"status": "COMPLETED"}]),
                unittest.mock.patch.object(operator, "_wait"),
                frames,
            ):
                watched = list(operator.watch("task", frame=frame))
            self.assertEqual(watched if frame else [(round["number"], round["state"]) for round in watched], told)

    @installed("matplotlib")
    def test_a_metric_as_a_plot(self):
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        with federation() as running:
            running.operator.create(line("plotted", rounds=2, cohort=1, **CLEAR))
            with self.assertRaisesRegex(tb.Error, "no round of plotted has the metric 'train_loss'"):
                running.operator.plot("plotted")
            take_part(running, "plotted")
            axes = running.operator.plot("plotted")
            self.assertEqual(axes.lines[0].get_xydata().tolist(), [[1, 1], [2, 0.5]])
            self.assertEqual((axes.get_xlabel(), axes.get_ylabel(), axes.get_title()), ("round", "train_loss", "plotted"))
            own = plt.figure().add_subplot()
            self.assertIs(running.operator.plot("plotted", metric="accuracy", ax=own), own)
            self.assertEqual(own.lines[0].get_ydata().tolist(), [0.25, 0.5])
        plt.close("all")

    def test_rounds_are_told_as_they_end(self):
        with federation() as running:
            running.operator.create(line("watched", rounds=2, cohort=1, **CLEAR))
            watch = running.operator.watch("watched")
            take_part(running, "watched")
            self.assertEqual([(round["number"], round["state"], round["reported"]) for round in watch], [(1, "COMPLETED", 1), (2, "COMPLETED", 1)])
            self.assertEqual(list(running.operator.watch("watched")), [], "they ended before")
            self.assertEqual(running.operator.wait("watched")["model_version"], 2)


if __name__ == "__main__":
    unittest.main()

"""An app without a training function: the package trains the task's ready model, against a real coordinator."""

import math
import unittest

import numpy as np
import tributary as tb
from federation import federation, line

#: The rows of `client-sdk/ffi/tests/c/ready.c`.
LABELS = np.arange(64) % 2
FEATURES = np.array([[(row * 7 + column * 3) % 10 / 10 + (column % 2 == row % 2) for column in range(4)] for row in range(64)])
MODEL = {
    "architecture": {"kind": "linear", "inputs": 4, "classes": 2},
    "tensors": [
        {"name": "fc.weight", "shape": [2, 4], "init": "zeros"},
        {"name": "fc.bias", "shape": [2], "init": "zeros"},
    ],
}
CLEAR = {"secure_aggregation": {"enabled": False}, "training": {"epochs": 2, "learning_rate": 0.1}}


class Ready(unittest.TestCase):
    def test_a_ready_model_is_trained_on_rows_and_used(self):
        with federation() as running:
            running.operator.create(line("ready", rounds=2, cohort=1, **CLEAR, model=MODEL))
            options = {**running.options("ready", task="ready"), "secure_aggregation": {"required": False}}
            nan = FEATURES.copy()
            nan[3, 2] = np.nan
            with tb.participant(**options) as me:
                for task in me.tasks():
                    for features, labels, words in [
                        (FEATURES[:0], LABELS[:0], "at least one"),
                        (FEATURES, LABELS[1:], "64 rows and 63 labels"),
                        (FEATURES[:, 0], LABELS, "must be rows of numbers"),
                        (FEATURES.astype(str), LABELS, "must be rows of numbers"),
                        ([[0.0], [0.0, 1.0]], [0, 1], "features are nothing"),
                        (FEATURES, LABELS / 2, "must be classes"),
                        (FEATURES, -LABELS, "must be classes"),
                        (FEATURES, LABELS + 2**32, "must be classes"),
                        (FEATURES.reshape(32, 8), LABELS[:32], "takes 4"),
                        (FEATURES, LABELS + 6, "the label [67]"),
                        (nan, LABELS, "finite"),
                    ]:
                        with self.assertRaisesRegex(tb.UpdateError, words):
                            task.train(features, labels)
                    self.assertTrue(task.train(FEATURES, LABELS))
                    self.assertEqual(me.examples, 64)
                    with self.assertRaisesRegex(tb.Error, "answered before"):
                        task.train(FEATURES, LABELS)
                model = me.model("ready")
            self.assertEqual(model.version, 2)
            scores = model.scores(FEATURES)
            np.testing.assert_array_equal(scores.argmax(axis=1), LABELS)
            for rows in [FEATURES.tolist(), FEATURES.astype(">f8"), np.asfortranarray(FEATURES), FEATURES.reshape(64, 1, 2, 2)]:
                np.testing.assert_array_equal(model.scores(rows), scores)
            np.testing.assert_array_equal(model.scores(FEATURES[1]), scores[1:2])
            np.testing.assert_array_equal(model.scores(FEATURES > 1), model.scores((FEATURES > 1).astype("i8")))
            for rows, words in [
                (FEATURES[:0], "takes rows of 4 numbers"),
                (FEATURES[:, :3], "3 numbers"),
                (FEATURES.reshape(32, 8), "8 numbers"),
                (FEATURES[0, :3], "3"),
                (0.5, "4"),
                (FEATURES.astype(str), "must be rows of numbers"),
                (FEATURES.astype(complex), "must be rows of numbers"),
                ([[0.0], [0.0, 1.0]], "rows are nothing"),
                (nan, "row 3 has a number that is not finite"),
                (FEATURES * 1e300, "row 0 has a number that is not finite"),
            ]:
                with self.assertRaisesRegex(tb.Error, words):
                    model.scores(rows)

    def test_with_ditto_a_device_has_its_own_model_beside_the_shared_one(self):
        with federation() as running:
            ditto = {"personalization": {"method": "ditto", "lambda": 0.5}, "metrics": ["loss", "personal_loss"]}
            running.operator.create(line("personal", rounds=2, cohort=1, **CLEAR, **ditto, model=MODEL))
            options = running.options("personal", task="personal", trains_within=True)
            seen, own, rows = [], {}, (FEATURES[:48], LABELS[:48])
            with tb.participant(**{**options, "secure_aggregation": {"required": False}}) as me:
                for task in me.tasks():
                    seen.append((task.round, task.purpose))
                    self.assertEqual((task.frozen, task.correction, task.base), ([], None, None))
                    if task.purpose == "shared":
                        self.assertEqual((task.anchor, task.plan.proximal_mu), (None, 0.0))
                        with self.assertRaisesRegex(tb.UpdateError, "held out have 2 numbers"):
                            task.train(*rows, held_out=(FEATURES[:, :2], LABELS))
                        self.assertTrue(task.train(*rows, held_out=(FEATURES[48:], LABELS[48:])))
                        continue
                    self.assertEqual(task.plan.proximal_mu, 0.5)
                    begins_with = own if task.round == 2 else task.anchor
                    for name, array in task.parameters.items():
                        np.testing.assert_array_equal(array, begins_with[name])
                    if task.round == 2:
                        self.assertFalse(np.array_equal(task.anchor["fc.weight"], own["fc.weight"]))
                        self.assertTrue(task.train(*rows, held_out=(FEATURES[48:], LABELS[48:])))
                    else:
                        own = {name: array + 1 for name, array in task.parameters.items()}
                        self.assertTrue(task.send(own, examples=48, metrics={"personal_loss": 0.5}))
                model = me.model("personal")
            self.assertEqual(seen, [(1, "shared"), (1, "own"), (2, "shared"), (2, "own")])
            self.assertEqual((model.round, model.is_personalized), (2, True))
            self.assertFalse(np.array_equal(model["fc.weight"], own["fc.weight"]))
            first, second = (round["metrics"] for round in running.operator.rounds("personal"))
            # Of zeros, and then of what was learnt.
            self.assertAlmostEqual(first["loss"]["value"], math.log(2), places=3)
            self.assertLess(second["loss"]["value"], 0.65)
            self.assertAlmostEqual(first["personal_loss"]["value"], 0.5, places=3)
            # Of the trained model of the device, on the rows that were held out.
            self.assertLess(second["personal_loss"]["value"], second["loss"]["value"])

    def test_rows_are_copied_before_other_threads_may_write_to_them(self):
        given, scored = FEATURES.astype("f4"), []

        class Native:
            def scores(self, rows):
                scored.append(rows)
                return np.zeros((len(rows), 2), "f4")

        model = tb.Model.__new__(tb.Model)
        model._native = Native()
        for rows in (given, given[0], given[::2], np.asfortranarray(given)):
            model.scores(rows)
            self.assertFalse(np.may_share_memory(scored[-1], rows))
            self.assertTrue(scored[-1].flags.c_contiguous)

    def test_a_task_that_names_no_ready_model_says_so_and_still_takes_an_answer(self):
        with federation() as running:
            running.operator.create(line("own", rounds=1, cohort=1, **CLEAR))
            options = {**running.options("own", task="own"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    with self.assertRaises(tb.UpdateError):
                        task.train(FEATURES, LABELS)
                    task.send(task.parameters, examples=1)
            self.assertEqual(running.operator.rounds("own")[0]["reported"], 1)


if __name__ == "__main__":
    unittest.main()

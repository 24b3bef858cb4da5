"""Tasks that are analyses: what they ask for, and the rows that answer them, against a real coordinator."""

import dataclasses
import json
import time
import unittest

import numpy as np
import tributary as tb
from federation import each, federation, installed, line
from tributary.analysis import Analysis, table_of

EDGES = [18.0, 40.0, 65.0]
STATISTICS = {
    "kind": "statistics",
    "max_rows": 1000,
    "quantile_rounds": 2,
    "columns": [
        {"type": "real", "name": "age", "low": 0.0, "high": 128.0, "edges": EDGES, "quantiles": [0.5, 0.9]},
        {"type": "category", "name": "blood group", "categories": 4},
    ],
}
TREES = {
    "kind": "trees",
    "method": "boosting",
    "max_rows": 1000,
    "columns": [{"name": "x", "low": -4.0, "high": 4.0, "repeat": 2}, {"name": "noise", "low": 0.0, "high": 1.0}],
    "target": {"type": "class", "classes": 2},
    "trees": 2,
    "depth": 1,
    "sketch_rounds": 1,
}
CLEAR = {"secure_aggregation": {"enabled": False}}


def analysis(name, analytics, rounds, cohort=3, **more):
    return {
        "name": name,
        "analytics": analytics,
        "rounds": {"count": rounds, "select_max": cohort},
        "selection": {"cohort": {"count": cohort}},
        **more,
    }


def read(analytics):
    return Analysis._read(json.dumps(analytics))


class Analyses(unittest.TestCase):
    def test_statistics_of_three_are_those_of_one_table(self):
        random = np.random.default_rng(1)
        ages = [random.integers(0, 100, size=200 + 50 * index) for index in range(3)]
        groups = [random.integers(0, 4, size=len(age)) for age in ages]
        with federation() as running:
            running.operator.create(analysis("patients", STATISTICS, rounds=2))
            events = []

            def take_part(index):
                tell = (lambda name, fields: events.append((name, fields))) if index == 0 else None
                options = running.options(f"p{index}", task="patients", answers_analyses=True, on_event=tell)
                with tb.participant(**options) as me:
                    for task in me.tasks():
                        self.assertEqual((task.analysis, task.parameters), (read(STATISTICS), {}))
                        self.assertIn("an analysis (statistics)", repr(task))
                        if index == 0:
                            self.assertTrue(task.answer({"blood group": groups[0], "age": ages[0], "name": ["?"]}))
                        else:
                            self.assertTrue(task.answer(np.stack([ages[index], groups[index]], axis=1)))
                        with self.assertRaisesRegex(tb.Error, "answered before"):
                            task.answer({"blood group": groups[0], "age": ages[0]})
                    self.assertEqual(me.examples, len(ages[index]))
                    self.assertEqual(me.models, [])

            each(take_part, range(3))
            self.assertEqual(running.operator.wait("patients")["status"], "COMPLETED")
            self.assertEqual([round["reported"] for round in running.operator.rounds("patients")], [3, 3])
            first, found = running.operator.result("patients", version=1), running.operator.result("patients")
            assigned = dict(events)["assigned"]
            self.assertEqual((assigned["cohort"], assigned["secure_aggregation"]), (3, True))
        age, group = np.concatenate(ages), np.concatenate(groups)
        self.assertEqual((found["round"], found["rows"], found["participants"]), (2, len(age), 3))
        real, category = found["columns"][0]["real"], found["columns"][1]["category"]
        self.assertEqual((real["name"], real["below"], real["above"]), ("age", 0, 0))
        self.assertAlmostEqual(real["mean"], age.mean(), places=9)
        self.assertAlmostEqual(real["variance"], age.var(), places=4)
        self.assertEqual(real["histogram"], np.histogram(age, [-np.inf, *EDGES, np.inf])[0].tolist())
        self.assertEqual(category["counts"], np.bincount(group, minlength=4).tolist())
        self.assertEqual(first["columns"][0]["real"]["histogram"], real["histogram"])
        for quantile in real["quantiles"]:
            expected = np.quantile(age, quantile["of"], method="inverted_cdf")
            # Two rounds leave an interval of the range over 64 squared.
            self.assertAlmostEqual(quantile["value"], expected, delta=128 / 64**2)

    def test_trees_learn_from_targets_and_wrong_rows_are_named(self):
        random = np.random.default_rng(2)
        x, noise = random.normal(size=(200, 2)), random.random(200)
        right = {"x": x, "noise": noise}
        classes = (x[:, 0] > 0).astype(int)
        nan = x.copy()
        nan[3, 1] = np.nan
        with federation() as running:
            running.operator.create(analysis("trees", TREES, rounds=4, cohort=1, **CLEAR))
            options = running.options("trees", task="trees", answers_analyses=True)
            with tb.participant(**{**options, "secure_aggregation": {"required": False}}) as me:
                for task in me.tasks():
                    self.assertEqual(task.analysis.target, tb.Target("class", classes=2))
                    for rows, targets, words in [
                        (right, None, "targets: got 0 where 200"),
                        (right, classes[1:], "targets: got 199 where 200"),
                        (right, classes + 1, "the target of row .* is 2"),
                        (right, x, r"targets are an array of the shape \(200, 2\)"),
                        (right, classes.astype(str), "targets are an array of <U"),
                        ({"x": x}, classes, "without 'noise'; the analysis asks for 'x', 'noise'"),
                        ({"x": x[:, 0], "noise": noise}, classes, r"'x' have the shape \(200, 1\); a row has 2"),
                        ({"x": x, "noise": noise[1:]}, classes, "200 values of 'x' and 199 of 'noise'"),
                        ({"x": nan, "noise": noise}, classes, "row 3, column 1 is NaN"),
                        ({"x": x.astype(str), "noise": noise}, classes, "the values of 'x' are an array of <U"),
                        (x, classes, "columns: got 2 where 3"),
                        (x[None], classes, r"shape \(1, 200, 2\)"),
                        (np.zeros((0, 3)), classes[:0], "no rows"),
                        (3.0, classes, "must be rows of numbers"),
                    ]:
                        with self.assertRaisesRegex(tb.UpdateError, words):
                            task.answer(rows, targets=targets)
                    for wrong in (
                        lambda: task.send(task.parameters, examples=1),
                        lambda: task.send({"w": x}, examples=1),
                        lambda: task.train(x, classes),
                        lambda: task.train(x, classes, held_out=(x, classes)),
                    ):
                        with self.assertRaisesRegex(tb.UpdateError, "it takes rows, and no model"):
                            wrong()
                    self.assertTrue(task.answer(right, targets=classes, strict=True))
            found = running.operator.result("trees")
        self.assertEqual((found["round"], found["rows"], len(found["ensemble"]["trees"])), (4, 200, 2))
        self.assertGreater(found["accuracy"], 0.9)

    def test_evaluation_of_an_uploaded_model_equals_that_of_one_table(self):
        random = np.random.default_rng(4)
        x = random.normal(size=(300, 2))
        classes = (x[:, 0] + 0.5 * random.normal(size=300) > 0).astype(int)
        probabilities = lambda weights, rows: 1 / (1 + np.exp(-rows @ weights))
        evaluation = {"kind": "evaluation", "max_rows": 1000, "min_count": 3, "target": {"type": "class", "classes": 2}}
        model = {"tensors": [{"name": "w", "shape": [2]}]}
        with federation() as running:
            running.operator.create({"name": "first", "model": model, **CLEAR, "selection": {"cohort": {"count": 2}}})
            running.operator.create(
                analysis("measured", evaluation, 1, **CLEAR) | {"model": {**model, "initial": {"task": "first", "version": 0}}}
            )
            seen = []

            def take_part(index):
                rows = slice(100 * index, 100 * (index + 1))
                options = {**running.options(f"p{index}", task="measured", answers_analyses=True), "secure_aggregation": {"required": False}}
                with tb.participant(**options) as me:
                    for task in me.tasks():
                        weights = task.parameters["w"] + np.array([2.0, 0.0])
                        seen.append(task.analysis)
                        of_one = probabilities(weights, x[rows])
                        with self.assertRaisesRegex(tb.UpdateError, "without names of columns"):
                            task.answer({"p": of_one}, targets=classes[rows])
                        with self.assertRaisesRegex(tb.UpdateError, "it takes rows, and no model"):
                            task.send(task.parameters, examples=1)
                        task.answer(np.stack([1 - of_one, of_one], axis=1), targets=classes[rows])

            each(take_part, range(3))
            found = running.operator.result("measured")
        self.assertEqual((seen[0].kind, seen[0].columns, seen[0].target), ("evaluation", [], tb.Target("class", classes=2)))
        figures = found["figures"]["classes"]
        guessed = probabilities(np.array([2.0, 0.0]), x) > 0.5
        self.assertEqual(found["rows"], 300)
        self.assertAlmostEqual(figures["accuracy"], np.mean(guessed == classes))

    def test_an_app_that_does_not_say_that_it_answers_analyses_gets_none_and_knows_why(self):
        with federation() as running:
            running.operator.create(analysis("unasked", STATISTICS, rounds=2, cohort=1, **CLEAR))
            options = {**running.options("unasked", task="unasked"), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                while not (told := me.refusals):
                    time.sleep(0.01)
            self.assertIn("option `answers_analyses`", told[0]["reason"])

    def test_a_machine_answers_analyses_and_a_task_that_trains_takes_no_rows(self):
        with federation() as running:
            running.operator.create(analysis("driven", {**STATISTICS, "quantile_rounds": 1}, rounds=1, cohort=1, **CLEAR))
            options = {**running.options("driven", task="driven", answers_analyses=True), "secure_aggregation": {"required": False}}
            with tb.machine(**options) as me:
                while not (todo := me.tick()).is_over:
                    if todo.is_performed:
                        me.perform(lambda task: task.answer({"age": [16, 40], "blood group": [0, 1]}))
                    else:
                        time.sleep(0.02)  # earlier than it says does no harm
                self.assertEqual((todo.what, me.examples), ("task_over", 2))
            self.assertEqual(running.operator.result("driven")["columns"][0]["real"]["histogram"], [1, 0, 1, 0])
            with self.assertRaises(tb.Error):
                running.operator.model("driven")

            running.operator.create(line("trains", rounds=1, cohort=1, **CLEAR))
            options = {**running.options("trains", task="trains", answers_analyses=True), "secure_aggregation": {"required": False}}
            with tb.participant(**options) as me:
                for task in me.tasks():
                    self.assertIsNone(task.analysis)
                    with self.assertRaisesRegex(tb.UpdateError, "trains a model"):
                        task.answer(np.zeros((3, 2)))
                    task.send(task.parameters, examples=1)
            with self.assertRaisesRegex(tb.Error, "version 1 of trains is not that of an analysis"):
                running.operator.result("trains")


class Rows(unittest.TestCase):
    def test_what_a_newer_task_says_is_kept(self):
        told = read({**STATISTICS, "columns": [{**STATISTICS["columns"][1], "unit": "group"}], "salt": 3})
        self.assertEqual((told.kind, told.max_rows, told.target), ("statistics", 1000, None))
        self.assertEqual(told.more, {"quantile_rounds": 2, "salt": 3})
        self.assertEqual(told.columns, [tb.Column("blood group", "category", categories=4, more={"unit": "group"})])

    def test_numbers_keep_their_64_bits_and_a_single_column_may_come_alone(self):
        one = dataclasses.replace(read(STATISTICS), columns=[tb.Column("age")])
        exact = np.array([0.1, 2**53 - 1.0, 1 / 3])
        for rows in (exact, exact[:, None], exact.tolist(), {"age": exact}, {"age": exact.astype(">f8")}, {"age": exact[:, None]}):
            flat, width, targets = table_of(one, rows, None)
            self.assertEqual((flat.tolist(), flat.dtype, width, targets), (exact.tolist(), np.float64, 1, None))

    def test_columns_of_one_name_must_come_in_order(self):
        twice = dataclasses.replace(read(STATISTICS), columns=[tb.Column("age"), tb.Column("age")])
        with self.assertRaisesRegex(tb.UpdateError, "'age', 'age', one of them twice"):
            table_of(twice, {"age": [1.0]}, None)
        self.assertEqual(table_of(twice, [[1.0, 2.0]], None)[1], 2)

    @installed("pandas")
    def test_a_data_frame_is_asked_by_name(self):
        import pandas as pd

        frame = pd.DataFrame({"blood group": [0, 3], "name": ["a", "b"], "age": [16.5, 40.0]})
        flat, width, _ = table_of(read(STATISTICS), frame, None)
        self.assertEqual((flat.tolist(), width), ([16.5, 0.0, 40.0, 3.0], 2))
        with self.assertRaisesRegex(tb.UpdateError, "without 'age'"):
            table_of(read(STATISTICS), frame.drop(columns="age"), None)


if __name__ == "__main__":
    unittest.main()

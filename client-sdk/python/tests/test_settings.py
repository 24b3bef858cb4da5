"""Whatever the package raises by itself is its own error, without a coordinator: settings, task files, answers, metrics."""

import http.client
import json
import math
import pathlib
import tempfile
import unittest
import unittest.mock

import numpy as np
import tributary as tb
from tributary.operator import _safetensors
from tributary.task import _measured, _whole

NAN = float("nan")
CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Errors(unittest.TestCase):
    def test_each_is_an_error_of_the_package_and_a_wrong_update_is_a_value_error_too(self):
        own = {getattr(tb, name) for name in tb.__all__ if isinstance(getattr(tb, name), type) and issubclass(getattr(tb, name), BaseException)}
        self.assertGreaterEqual(len(own), 9)
        for one in own:
            self.assertTrue(issubclass(one, tb.Error), one)
        self.assertTrue(issubclass(tb.UpdateError, ValueError))
        self.assertEqual((tb.UpdateError.__name__, tb.UpdateError.__module__), ("UpdateError", "tributary"))
        self.assertIn("does not fit", tb.UpdateError.__doc__)


class Settings(unittest.TestCase):
    def test_one_that_cannot_be_used_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for setting, wrong, words in [
                ("checkpoint_every", NAN, "checkpoint_every cannot be used: cannot convert float NaN"),
                ("checkpoint_every", math.inf, "checkpoint_every"),
                ("checkpoint_every", "often", "checkpoint_every"),
                ("checkpoint_every", -1.0, "-1"),
                ("training_slice", None, "training_slice"),
                ("journal", None, "journal"),
                ("journal", 3, "journal"),
                ("journal_key", 3, "journal_key"),
                ("journal_generation", [], "journal_generation"),
                ("ca", 3, "ca cannot be used"),
                ("ca", "\0", "no certificate can be read"),
                ("ca", pathlib.Path(folder), "no certificate can be read"),
                ("labels", 3, "labels cannot be used: 'int' object is not iterable"),
                ("labels", "abc", "labels"),
                ("attributes", {"memory": np.float32(3)}, "attributes cannot be used: Object of type float32"),
                ("attributes", {("a", "b"): 3}, "attributes"),
                ("coordinator_keys", 3, "coordinator_keys"),
                ("accepted_graphs", 3, "accepted_graphs"),
                ("accepted_graphs", ["abc"], "64"),
                ("secure_aggregation", 3, "secure_aggregation"),
                ("privacy", ["lifetime"], "privacy"),
                ("device_conditions", "charging", "device_conditions"),
                ("seed", {1, 2}, "seed"),
                ("token", b"secret", "token cannot be used"),
                ("on_event", 3, "int cannot be called"),
            ]:
                for start in (tb.participant, tb.machine):
                    settings = {"ca": CA, "journal": f"{folder}/journal", setting: wrong}
                    with self.subTest(setting=setting, wrong=wrong), self.assertRaisesRegex(tb.ConfigurationError, words) as caught:
                        start("https://localhost:1", **settings)
                    self.assertNotIn("secret", str(caught.exception))
            for server in (None, "", 3):
                with self.assertRaises(tb.ConfigurationError):
                    tb.participant(server, ca=CA, journal=f"{folder}/journal")
            for settings in ({"journal": 3}, {"journal": folder, "journal_key": 3}, {"journal": folder, "journal_generation": 3}):
                with self.assertRaisesRegex(tb.ConfigurationError, "cannot be used"):
                    tb.Model.load("digits", **settings)

    def test_an_unknown_one_is_refused_as_python_does(self):
        for start in (tb.participant, tb.machine):
            with self.assertRaisesRegex(TypeError, "journals"):
                start("https://localhost:1", journal="journal", journals="elsewhere")


class Numbers(unittest.TestCase):
    def test_a_count_of_examples(self):
        for wrong in (-1, 1.5, "1", True, None, 2**64, np.array([1, 2])):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(tb.UpdateError, "a number of examples"):
                _whole(wrong)
        self.assertEqual([_whole(right) for right in (0, np.int64(3), 2**64 - 1)], [0, 3, 2**64 - 1])

    def test_metrics(self):
        for wrong in (3, {"loss": "low"}, {"loss": None}, {"loss": np.ones(2)}, [("loss", 1.0)]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(tb.UpdateError, "names to numbers"):
                _measured(wrong, 1)
        self.assertEqual(_measured({"loss": np.float32(0.5)}, 7), [("loss", 0.5, 7)])


class Answers(unittest.TestCase):
    """What an operator is told by something that is no coordinator, or sends what is no task."""

    def setUp(self):
        self.operator = tb.Operator("https://localhost:1", "token")

    def answer(self, said, kind="application/json"):
        answer = unittest.mock.MagicMock()
        answer.__enter__.return_value = answer
        answer.headers.get_content_type.return_value = kind
        if isinstance(said, Exception):
            answer.read.side_effect = said
        else:
            answer.read.return_value = said
        return unittest.mock.patch("urllib.request.OpenerDirector.open", return_value=answer)

    def test_an_answer_that_is_cut_or_no_json(self):
        with self.answer(b"<html>"), self.assertRaisesRegex(tb.Error, "no JSON"):
            self.operator.tasks()
        with self.answer(http.client.IncompleteRead(b"{")), self.assertRaisesRegex(tb.Error, "cannot be reached"):
            self.operator.tasks()
        with self.answer(b"safetensors", "application/octet-stream"), self.assertRaisesRegex(tb.Error, "what is no model"):
            self.operator.model("digits", 1)

    def test_a_model_that_is_none(self):
        about = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        header = json.dumps(about).encode()
        whole = len(header).to_bytes(8, "little") + header + np.ones(2, "<f4").tobytes()
        np.testing.assert_array_equal(_safetensors(whole)["w"], [1, 1])
        for wrong in (b"", whole[:-1], whole[:9], whole[:8] + b"[]" + b" " * (len(header) - 2)):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(tb.Error, "what is no model"):
                _safetensors(wrong)

    def test_a_task_that_is_none(self):
        with self.assertRaisesRegex(tb.Error, "int64 is not JSON"):
            self.operator.create({"name": "digits", "rounds": {"count": np.int64(3)}})
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("task.toml", "name ="), ("task.json", "{"), ("task.json", "3"), ("task.toml", None)):
                file = pathlib.Path(folder, name)
                if text is None:
                    file.unlink()
                else:
                    file.write_text(text)
                with self.subTest(text=text), self.assertRaisesRegex(tb.ConfigurationError, "task"):
                    self.operator.create(file)
        with self.assertRaises(tb.ConfigurationError):
            tb.Operator(3, "token")
        with self.assertRaisesRegex(tb.ConfigurationError, "ca cannot be used"):
            tb.Operator("https://localhost:1", "token", ca=3)


if __name__ == "__main__":
    unittest.main()

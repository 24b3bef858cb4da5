"""The simulator, from Python."""

import unittest

import tributary as tb

SMALL = {"population": 20, "cohort": 5, "rounds": 2}


class Simulations(unittest.TestCase):
    def test_a_small_one_tells_its_rounds_and_is_repeatable(self):
        found = tb.simulate(**SMALL, seed=7)
        self.assertEqual([round["number"] for round in found["rounds"]], [1, 2])
        self.assertEqual((found["rounds_completed"], found["population"], found["seed"]), (2, 20, 7))
        self.assertEqual([point["round"] for point in found["curve"]], [0, 1, 2])
        self.assertEqual(tb.simulate(**SMALL, seed=7)["model_sha256"], found["model_sha256"])
        in_the_clear = tb.simulate(**SMALL, insecure_aggregation=True, data_dir=None)
        self.assertEqual((found["secure_aggregation"], in_the_clear["secure_aggregation"]), (True, False))

    def test_what_it_refuses_is_raised(self):
        with self.assertRaisesRegex(tb.Error, "above --population 5"):
            tb.simulate(population=5)
        with self.assertRaisesRegex(tb.ConfigurationError, "cannot be run"):
            tb.simulate(binary="/nowhere/tributary")


if __name__ == "__main__":
    unittest.main()

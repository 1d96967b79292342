"""The seeds of `make recipe-parity`: their rows, and what is made of them."""
import pathlib
import tempfile
import unittest

import seeds


class Chances(unittest.TestCase):
    def test_are_those_of_the_tables(self):
        for freedom, t, chance in ((2, 4.302653, 0.05), (4, 2.776445, 0.05), (4, 4.604095, 0.01), (10, 3.169273, 0.01)):
            with self.subTest(freedom=freedom, t=t):
                self.assertAlmostEqual(seeds.chance_of_t(t, freedom), chance, places=6)
                self.assertAlmostEqual(seeds.limit_of_t(chance, freedom), t, places=5)
        for freedom, ratio, tail in ((2, 19.0, 0.05), (5, 5.050329, 0.05), (5, 10.967021, 0.01)):
            with self.subTest(freedom=freedom, ratio=ratio):
                self.assertAlmostEqual(seeds.chance_of_ratio(ratio, freedom), 2 * tail, places=6)
        self.assertAlmostEqual(seeds.chance_of_ratio(1.0, 3), 1)


class Verdict(unittest.TestCase):
    NEAR = [[1.54], [1.52], [1.53], [1.55]]

    def test_of_sides_that_differ_as_seeds_do(self):
        passed, text = seeds.verdict(self.NEAR, [[1.55], [1.52], [1.56], [1.54]])
        self.assertTrue(passed, text)
        self.assertIn("Passed, 4 seeds a side", text)

    def test_of_means_apart(self):
        passed, text = seeds.verdict(self.NEAR, [[loss + 0.1] for (loss,) in self.NEAR])
        self.assertFalse(passed, text)
        self.assertIn("FAILED", text)

    def test_of_spreads_apart(self):
        """The means are equal: a side that varies more does not pass by its own noise."""
        passed, text = seeds.verdict(self.NEAR, [[1.535 + 30 * (loss - 1.535)] for (loss,) in self.NEAR])
        self.assertFalse(passed, text)

    def test_of_one_epoch_of_two(self):
        theirs = [[loss, loss] for (loss,) in self.NEAR]
        self.assertTrue(seeds.verdict(theirs, theirs)[0])
        self.assertFalse(seeds.verdict(theirs, [[loss, loss + 0.2] for loss, _ in theirs])[0])

    def test_of_pairs(self):
        near = [[loss + 0.001] for (loss,) in self.NEAR]
        self.assertTrue(seeds.verdict_of_pairs(self.NEAR, near)[0])
        self.assertFalse(seeds.verdict_of_pairs(self.NEAR, [*near[:3], [1.60]])[0])
        self.assertFalse(seeds.verdict_of_pairs(self.NEAR, sorted(self.NEAR)[::-1])[0], "the same losses of other seeds")


class Seeds(unittest.TestCase):
    def test_are_a_number_or_a_range(self):
        self.assertEqual(seeds.parsed("3"), [0, 1, 2])
        self.assertEqual(seeds.parsed("3-5"), [3, 4, 5])
        for text in ("1", "0", "4-4", "5-3", "", "a", "1-", "-2", "0,1"):
            with self.subTest(text), self.assertRaises(ValueError):
                seeds.parsed(text)

    def test_rows_outlive_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "new" / "rows.jsonl"
            seeds.Rows(file, {"code": "a"}).add(recipe="cifar", side="Python", seed=0, losses=[1.5], seconds=2)
            seeds.Rows(file, {"code": "b"}).add(recipe="cifar", side="Python", seed=1, losses=[2.5], seconds=2)
            rows = seeds.Rows(file, {"code": "a"})
            rows.add(recipe="cifar", side="Lockstep", seed=0, losses=[3.5], seconds=2)
            self.assertEqual([row["losses"] for row in rows.find(recipe="cifar", seed=0)], [[1.5], [3.5]])
            again = seeds.Rows(file, {"code": "a"})
            self.assertEqual([row["losses"] for row in again.rows], [[1.5], [3.5]])
            self.assertEqual(again.find(side="Python", seed=1), [])


if __name__ == "__main__":
    unittest.main()

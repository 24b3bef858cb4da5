"""Runs an example, with 0.1 s for each step, so that it can be killed in the middle. slowly.py EXAMPLE SITE"""
import pathlib
import runpy
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tributary  # noqa: E402

progress = tributary.Job.progress


def slow(job, *said, **more):
    progress(job, *said, **more)
    time.sleep(0.1)


tributary.Job.progress = slow
sys.argv = sys.argv[1:]
runpy.run_path(str(pathlib.Path(sys.path[0]) / sys.argv[0]), run_name="__main__")

"""Regressions and survival over six sites that keep their rows, next to the same methods on one table with all of them.

Three public tables: extramarital affairs (Fair 1978, logistic), doctor visits in RAND's health insurance experiment (Poisson), and arrests
after a release from prison (Rossi et al. 1980: Cox, Kaplan-Meier and log-rank). Each is sorted before it is divided, so that sites differ.
Masks hide each site's sums.

Start `tributary serve --dev` and set TRIBUTARY_SERVER, TRIBUTARY_CA and TRIBUTARY_TOKEN as it prints them. Needs statsmodels and lifelines.
"""

import os
import pathlib
import tempfile
import threading

import lifelines
import lifelines.statistics
import numpy as np
import statsmodels.api as sm
import tributary as tb
from lifelines.datasets import load_rossi

SITES = 6
#: Sums of three sites are enough, also if the others collude: one party runs all of them here.
MASKS = {"min_cohort": 3, "min_tolerated_colluders": 0}


def numbers(frame, names):
    """Columns of numbers. The ranges are part of the task; here they are known from the data sets' descriptions."""
    return [{"type": "real", "name": name, "low": float(frame[name].min()) - 1, "high": float(frame[name].max()) + 1} for name in names]


def site(folder, name, task, token, rows, targets):
    """A site answers with its rows, which stay where they are."""
    with tb.participant(
        task=task, journal=folder / name, token=token, answers_analyses=True, secure_aggregation=MASKS, quiet=True
    ) as me:
        for job in me.tasks():
            job.answer(rows, targets=targets)


def result(name, analysis, rounds, frame, target):
    """The published result of a task over six sites."""
    operator = tb.Operator(os.environ["TRIBUTARY_SERVER"], ca=os.environ["TRIBUTARY_CA"])
    operator.create(
        {
            "name": name,
            "analytics": {"max_rows": 10_000, **analysis},
            "rounds": {"count": rounds, "select_max": SITES},
            "selection": {"cohort": {"count": SITES}},
        }
    )
    parts = np.array_split(np.arange(len(frame)), SITES)
    with tempfile.TemporaryDirectory() as folder:
        threads = []
        for number, part in enumerate(parts):
            token = operator.enroll(f"{name}-{number}")
            of_site = (pathlib.Path(folder), f"site-{number}", name, token, frame.iloc[part], np.asarray(target)[part])
            threads.append(threading.Thread(target=site, args=of_site))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return operator.result(name)


def compare(title, found, estimates, errors):
    """Prints coefficients and standard errors next to the pooled ones, and the largest relative difference."""
    print(f"\n{title}: {found['rows']} rows of {SITES} sites" + ("" if found["converged"] else f"; {found['problem']}"))
    worst = 0.0
    for one, estimate, error in zip(found["coefficients"], estimates, errors, strict=True):
        print(f"  {one['name']:14} {one['estimate']:12.7f} ± {one['standard_error']:.7f}   pooled {estimate:12.7f} ± {error:.7f}")
        differences = abs(one["estimate"] - estimate) / error, abs(one["standard_error"] - error) / error
        worst = max(worst, *differences)
    print(f"  largest difference, in standard errors: {worst:.1e}")


def affairs():
    data = sm.datasets.fair.load_pandas().data.sort_values("age", kind="stable")
    names, happened = ["rate_marriage", "age", "yrs_married", "religious", "educ"], (data.affairs > 0).astype(float)
    analysis = {"kind": "regression", "target": {"type": "binary"}, "columns": numbers(data, names), "iterations": 7}
    found = result("affairs", analysis, 8, data[names], happened)
    pooled = sm.GLM(happened, sm.add_constant(data[names]), family=sm.families.Binomial()).fit(tol=1e-14)
    compare("Affairs, logistic regression", found, pooled.params, pooled.bse)


def visits():
    data = sm.datasets.randhie.load_pandas().data.sort_values("lpi", kind="stable")
    names = ["lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"]
    analysis = {"kind": "regression", "target": {"type": "count", "high": 100}, "columns": numbers(data, names), "iterations": 7}
    found = result("visits", analysis, 8, data[names], data.mdvis)
    pooled = sm.GLM(data.mdvis, sm.add_constant(data[names]), family=sm.families.Poisson()).fit(tol=1e-14)
    compare("Doctor visits, Poisson regression", found, pooled.params, pooled.bse)


def arrests():
    data = load_rossi().sort_values("prio", kind="stable")
    names, weeks = ["fin", "age", "race", "wexp", "mar", "paro", "prio"], {"type": "time", "name": "week", "step": 1, "steps": 52}
    analysis = {"kind": "cox", "columns": [weeks, *numbers(data, names)], "iterations": 6}
    found = result("arrests", analysis, 7, data[["week", *names]], data.arrest)
    pooled = lifelines.CoxPHFitter().fit(data, "week", "arrest", fit_options={"precision": 1e-14})
    compare("Arrests, Cox's regression", found, pooled.params_, pooled.standard_errors_)

    aid = {"type": "category", "name": "fin", "categories": 2}
    analysis = {"kind": "survival", "columns": [weeks, aid], "min_count": 5}
    curves = result("aid", analysis, 1, data[["week", "fin"]], data.arrest)
    test = lifelines.statistics.multivariate_logrank_test(data.week, data.fin, data.arrest)
    print(f"\nArrests by financial aid, log-rank test: chi-square {curves['log_rank']['chi_square']:.9f}, pooled {test.test_statistic:.9f}")
    worst = 0.0
    for group, curve in enumerate(curves["groups"]):
        own = data[data.fin == group]
        pooled = lifelines.KaplanMeierFitter().fit(own.week, own.arrest).survival_function_.iloc[:, 0]
        worst = max(worst, *(abs(point["survival"] - pooled.loc[point["time"]]) for point in curve["points"]))
        last = curve["points"][-1]
        print(f"  fin = {group}: {curve['events']} of {curve['rows']} arrested; {last['survival']:.4f} free after week {last['time']:.0f}")
    print(f"  largest difference of a curve: {worst:.1e}")


if __name__ == "__main__":
    affairs()
    visits()
    arrests()

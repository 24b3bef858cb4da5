"""Writes patients.csv and pooled.json: the 90 patients of Kardaun (1983) as lifelines 0.30.3 has them, and pooled answers by statsmodels
0.15.0, lifelines 0.30.3 and SciPy 1.17.1."""

import json

import lifelines
import numpy as np
import statsmodels.api as sm
from lifelines.datasets import load_larynx
from lifelines.statistics import multivariate_logrank_test
from scipy.stats import chi2_contingency

data = load_larynx()
stage = (data.Stage_II + 2 * data.Stage_III + 3 * data.Stage_IV).astype(int)
with open("patients.csv", "w", encoding="utf-8") as file:
    file.write("time,age,stage,death\n")
    file.writelines(f"{t},{a},{s},{d}\n" for t, a, s, d in zip(data.time, data.age, stage, data.death))
terms = sm.add_constant(data[["age", "Stage_II", "Stage_III", "Stage_IV"]].astype(float))


def coefficients(estimates, errors, p_values, bounds):
    rows = zip(estimates, errors, p_values, bounds)
    return [dict(estimate=float(e), standard_error=float(s), p_value=float(p), low=float(b[0]), high=float(b[1])) for e, s, p, b in rows]


def of_statsmodels(fit, **more):
    return dict(coefficients=coefficients(fit.params, fit.bse, fit.pvalues, np.asarray(fit.conf_int())), log_likelihood=float(fit.llf), **more)


exact = dict(tol=1e-14, maxiter=100)
linear = sm.OLS(data.time, terms).fit()
found = {
    "linear": of_statsmodels(linear, r_squared=linear.rsquared, residual_variance=linear.scale),
    "logistic": of_statsmodels(sm.GLM(data.death, terms, family=sm.families.Binomial()).fit(**exact)),
    "poisson": of_statsmodels(sm.GLM(data.death, terms, family=sm.families.Poisson(), exposure=data.time).fit(**exact)),
}
cox = lifelines.CoxPHFitter().fit(data, "time", "death", fit_options=dict(precision=1e-14, step_size=1.0))
bounds = cox.confidence_intervals_.values
found["cox"] = dict(
    coefficients=coefficients(cox.params_, cox.standard_errors_, cox.summary.p, bounds), log_likelihood=cox.log_likelihood_
)
curves, medians = [], []
for group in range(4):
    fit = lifelines.KaplanMeierFitter().fit(data.time[stage == group], data.death[stage == group])
    medians.append(float(fit.median_survival_time_) if np.isfinite(fit.median_survival_time_) else None)
    table = fit.event_table[fit.event_table.observed > 0]
    curves.append(
        [
            dict(time=float(t), at_risk=int(r.at_risk), events=int(r.observed), survival=float(fit.survival_function_.loc[t].iloc[0]),
                 low=float(fit.confidence_interval_.loc[t].iloc[0]), high=float(fit.confidence_interval_.loc[t].iloc[1]))
            for t, r in table.iterrows()
        ]
    )
test = multivariate_logrank_test(data.time, stage, data.death)
found["survival"] = dict(curves=curves, medians=medians, chi_square=float(test.test_statistic), p_value=float(test.p_value))
counts = np.array([[np.sum((stage == s) & (data.death == d)) for d in (0, 1)] for s in range(4)])
both = chi2_contingency(counts)
early = np.array([counts[:2].sum(0), counts[2:].sum(0)])
two, corrected = chi2_contingency(early, correction=False), chi2_contingency(early)
found["contingency"] = dict(counts=counts.tolist(), chi_square=both.statistic, p_value=both.pvalue)
table = sm.stats.Table2x2(early)
found["two_by_two"] = dict(
    chi_square=two.statistic, p_value=two.pvalue, corrected_chi_square=corrected.statistic, corrected_p_value=corrected.pvalue,
    odds_ratio=table.oddsratio, low=table.oddsratio_confint()[0], high=table.oddsratio_confint()[1],
)
with open("pooled.json", "w", encoding="utf-8") as file:
    json.dump(found, file, indent=1)
    file.write("\n")

//! Analyses with noise: bounded contributions, and the error for ten thousand people at epsilon 1.

use rand_chacha::ChaCha20Rng;
use serde_json::json;
use task_spec::{PrivacyAccounting, PrivacyMechanism};

use super::*;
use crate::Update;
use crate::privacy::{DiscreteGaussian, Goal, NoiseSampler, PlanRequest, PlanSampling, plan};

/// A private federation of an analysis in which everybody takes part in each round.
struct Private {
    analysis: Analysis,
    request: PlanRequest,
    noise_multiplier: f64,
}

impl Private {
    fn new(spec: serde_json::Value, people: u32, mechanism: PrivacyMechanism, epsilon: f64) -> Self {
        let analysis = Analysis::new(serde_json::from_value(spec).unwrap(), 32, people).unwrap();
        let request = PlanRequest {
            mechanism,
            population: people,
            cohort: people,
            rounds: analysis.rounds(),
            delta: 1e-5,
            goal: Goal::Epsilon(epsilon),
            sampling: PlanSampling::Anyhow,
            parameters: analysis.codec().values() as u64,
            modulus_bits: 32,
            smallest_cohort: people,
            colluders: 0,
            participations: None,
            separation: None,
            adaptive: false,
            max_weight: 1,
            expected_weight: 1.0,
            accounting: PrivacyAccounting::Pld,
        };
        let noise_multiplier = plan(&request).unwrap().noise_multiplier;
        Self { analysis, request, noise_multiplier }
    }

    /// One round: encoded, noised and summed as in a federation.
    fn round(&self, state: &AnalyticsState, tables: &[Table], rng: &mut ChaCha20Rng) -> AnalyticsState {
        let codec = self.request.codec(self.noise_multiplier).unwrap();
        let shares = self.request.shares(&codec).unwrap().map(|shares| NoiseSampler::new(shares.share));
        let form = self.analysis.private_form(state).unwrap();
        let mut sum = vec![0_u32; codec.len()];
        for table in tables {
            let delta = form.encode(&self.analysis.contribution(state, table).unwrap()).unwrap();
            let update = Update { delta, examples: 1, metrics: Vec::new() };
            let mut words = codec.encode(&update, 1.0, &[7; 32], rng).unwrap().words;
            if let Some(shares) = &shares {
                shares.add_to(&mut words, 32, rng);
            }
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        }
        let participants = u32::try_from(tables.len()).unwrap();
        let sum = ExactSum::new(sum, 32, participants).unwrap();
        let sum = match shares {
            Some(_) => sum.release_without_noise(),
            None => sum.add_central_noise(&DiscreteGaussian::new(codec.sigma()), rng),
        };
        let mean = codec.decode(&sum, 1.0, &[7; 32]).unwrap();
        let forms = NoisedForms {
            mean: &mean.delta,
            cohort: f64::from(self.request.cohort),
            noise: codec.sigma().value() / codec.scale(1.0),
        };
        let next = self.analysis.advance_noised(state, &forms).unwrap().state;
        // It is published and read like any other.
        assert_eq!(self.analysis.read_published(&next.to_bytes().unwrap()).unwrap(), next);
        next
    }

    fn run(&self, tables: &[Table], seed: u64) -> AnalyticsState {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let first = self.analysis.initial();
        (0..self.analysis.rounds()).fold(first, |state, _| self.round(&state, tables, &mut rng))
    }
}

/// One row for each person.
fn persons(rows: impl Iterator<Item = Vec<f64>>) -> Vec<Table> {
    rows.map(|row| Table::new(row.len(), row).unwrap()).collect()
}

const PEOPLE: u32 = 10_000;
const CENTRAL: PrivacyMechanism = PrivacyMechanism::CentralGaussian;
const SKELLAM: PrivacyMechanism = PrivacyMechanism::DistributedSkellam;

fn ages() -> Vec<Table> {
    let mut rng = random(11);
    persons((0..PEOPLE).map(|_| vec![(45.0 + 18.0 * normal(&mut rng)).clamp(0.0, 100.0).floor()]))
}

fn age_spec(quantiles: &[f64]) -> serde_json::Value {
    let edges: Vec<f64> = (1..10).map(|decade| 10.0 * f64::from(decade)).collect();
    json!({ "kind": "statistics", "max_rows": 1, "quantile_rounds": 2, "columns": [
        { "type": "real", "name": "age", "low": 0.0, "high": 100.0, "edges": edges, "quantiles": quantiles } ] })
}

fn statistics(state: AnalyticsState) -> StatisticsState {
    match state {
        AnalyticsState::Statistics(state) => state,
        other => panic!("{other:?}"),
    }
}

fn real(state: &StatisticsState) -> (f64, f64, &[u64], &[Quantile]) {
    match &state.columns[0] {
        ColumnStatistics::Real { mean, variance, histogram, quantiles, .. } => {
            (mean.unwrap(), variance.unwrap(), histogram, quantiles)
        }
        other @ ColumnStatistics::Category { .. } => panic!("{other:?}"),
    }
}

fn exact(spec: serde_json::Value, tables: &[Table]) -> AnalyticsState {
    let cohort = u32::try_from(tables.len()).unwrap();
    run(&Analysis::new(serde_json::from_value(spec).unwrap(), 32, cohort).unwrap(), tables)
}

#[test]
fn age_histogram_is_within_two_percent() {
    let tables = ages();
    for mechanism in [CENTRAL, SKELLAM] {
        let noised = statistics(Private::new(age_spec(&[]), PEOPLE, mechanism, 1.0).run(&tables, 1));
        let exact = statistics(exact(age_spec(&[]), &tables));
        let ((mean, variance, histogram, _), (true_mean, true_variance, counts, _)) = (real(&noised), real(&exact));
        let errors: Vec<f64> = histogram.iter().zip(counts).map(|(a, b)| a.abs_diff(*b) as f64).collect();
        println!(
            "ages, {mechanism:?}: {histogram:?} for {counts:?}, noise {:.1}; mean {mean:.2} for {true_mean:.2}; sd {:.2} for {:.2}",
            noised.count_noise.unwrap(),
            variance.sqrt(),
            true_variance.sqrt()
        );
        // Two percent of the people; and the stated noise is that of the counts.
        assert!(errors.iter().all(|error| *error < 0.02 * f64::from(PEOPLE)), "{errors:?}");
        let noise = noised.count_noise.unwrap();
        assert!(noise > 2.0 && errors.iter().all(|error| *error < 5.0 * noise), "{noise}: {errors:?}");
        let spread = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        assert!((0.3..2.0).contains(&(spread / noise)), "{spread} for {noise}");
        assert!((mean - true_mean).abs() < 1.0 && (variance.sqrt() - true_variance.sqrt()).abs() < 1.0);
        assert!(noised.rows.abs_diff(u64::from(PEOPLE)) < 100 && noised.participants == PEOPLE);
    }
}

#[test]
fn quantiles_and_categories_have_small_errors() {
    let tables = ages();
    let of = [0.25, 0.5, 0.9];
    let noised = statistics(Private::new(age_spec(&of), PEOPLE, CENTRAL, 1.0).run(&tables, 2));
    let exact = statistics(exact(age_spec(&of), &tables));
    for (quantile, right) in real(&noised).3.iter().zip(real(&exact).3) {
        println!("quantile {}: {:.2} for {:.2}", right.of, quantile.value, right.value);
        assert!((quantile.value - right.value).abs() < 2.0);
    }
}

#[test]
fn contingency_has_noised_counts_and_no_test() {
    let mut rng = random(12);
    let tables = persons((0..PEOPLE).map(|_| {
        let exposed = f64::from(unit(&mut rng) < 0.4);
        vec![exposed, f64::from(unit(&mut rng) < 0.02 + 0.03 * exposed)]
    }));
    let spec = json!({ "kind": "contingency", "max_rows": 1, "columns": [
        { "type": "category", "name": "exposed", "categories": 2 }, { "type": "category", "name": "ill", "categories": 2 } ] });
    let of = |state| match state {
        AnalyticsState::Contingency(state) => state,
        other => panic!("{other:?}"),
    };
    let noised = of(Private::new(spec.clone(), PEOPLE, SKELLAM, 1.0).run(&tables, 3));
    let exact = of(exact(spec, &tables));
    println!("table: {:?} for {:?}, noise {:.1}", noised.counts, exact.counts, noised.count_noise.unwrap());
    let cells = |state: &ContingencyState| state.counts.concat();
    assert!(cells(&noised).iter().zip(cells(&exact)).all(|(a, b)| a.abs_diff(b) < 30));
    assert!(noised.test.is_none() && noised.odds_ratio.is_none() && noised.problem.unwrap().contains("noise"));
}

#[test]
fn clusters_are_found_through_noise() {
    let mut rng = random(13);
    let centres = [(-6.0, -6.0), (0.0, 6.0), (6.0, -2.0)];
    let tables = persons((0..PEOPLE).map(|person| {
        let (x, y) = centres[person as usize % 3];
        vec![x + normal(&mut rng), y + normal(&mut rng)]
    }));
    let spec = json!({ "kind": "k_means", "max_rows": 1, "clusters": 3, "iterations": 3, "seed": 3,
        "columns": [{ "name": "x", "low": -10.0, "high": 10.0, "repeat": 2 }] });
    let AnalyticsState::KMeans(found) = Private::new(spec, PEOPLE, CENTRAL, 1.0).run(&tables, 4) else { panic!() };
    for (x, y) in centres {
        let (_, distance) = found.nearest(&[x, y]).unwrap();
        println!("cluster at ({x}, {y}): off by {:.2}", distance.sqrt());
        assert!(distance.sqrt() < 0.5, "{distance}");
    }
    assert!(found.counts.iter().all(|count| count.abs_diff(3_333) < 300), "{:?}", found.counts);
}

#[test]
fn trees_predict_through_noise() {
    let mut rng = random(14);
    let mut person = |_| {
        let row: Vec<f64> = (0..4).map(|_| normal(&mut rng)).collect();
        let is_one = row[0] + 0.7 * row[2] > 0.3;
        Table::new(4, row).unwrap().with_targets(vec![f64::from(is_one)]).unwrap()
    };
    let (tables, others): (Vec<_>, Vec<_>) =
        ((0..PEOPLE).map(&mut person).collect(), (0..2_000).map(&mut person).collect());
    let spec = json!({ "kind": "trees", "method": "boosting", "target": { "type": "class", "classes": 2 }, "max_rows": 1,
        "trees": 3, "depth": 2, "bins": 8, "sketch_rounds": 1, "learning_rate": 1.0,
        "columns": [{ "name": "x", "low": -4.0, "high": 4.0, "repeat": 4 }] });
    let accuracy = |state: AnalyticsState| {
        let AnalyticsState::Trees(state) = state else { panic!() };
        let right = others.iter().filter(|one| state.ensemble.predict(one.row(0)).value() == one.targets()[0]).count();
        (right as f64 / others.len() as f64, state)
    };
    let (noised, state) = accuracy(Private::new(spec.clone(), PEOPLE, CENTRAL, 1.0).run(&tables, 5));
    let (exact, _) = accuracy(exact(spec, &tables));
    println!("trees: accuracy {noised:.3} for {exact:.3}");
    assert!(noised > 0.75 && exact > 0.8, "{noised} for {exact}");
    assert!(state.loss.is_none() && state.accuracy.is_some());
}

/// Two analyses whose people differ in one, who is 95: without noise the difference of two counts is that person.
#[test]
fn difference_of_two_analyses_does_not_reveal_a_person() {
    const TRIALS: u64 = 400;
    let mut rng = random(16);
    let mut people = persons((0..40).map(|_| vec![(90.0 * unit(&mut rng)).floor()]));
    people.push(Table::new(1, vec![95.0]).unwrap());
    let oldest = |state: AnalyticsState| *real(&statistics(state)).2.last().unwrap();
    let spec = age_spec(&[]);
    assert_eq!(oldest(exact(spec.clone(), &people)) - oldest(exact(spec.clone(), &people[..40])), 1);
    let private = Private::new(spec, 41, CENTRAL, 1.0);
    let mut right = 0;
    for trial in 0..TRIALS {
        let is_there = trial % 2 == 0;
        let first = oldest(private.run(&people[..40 + usize::from(is_there)], 2 * trial));
        let second = oldest(private.run(&people[..40], 2 * trial + 1));
        right += u64::from((first > second) == is_there);
    }
    println!("guesses from differences: {right} of {TRIALS} are right");
    // At epsilon 2 for both releases, no test is right more often than 88 of 100 times; this one is a coin.
    assert!((160..=250).contains(&right), "{right}");
}

/// The codec clips longer ones, which would only cost accuracy.
#[test]
fn private_forms_are_at_most_one_long() {
    let columns = json!([{ "name": "x", "low": -1.0, "high": 1.0, "repeat": 3 }]);
    let statistics = json!([
        { "type": "real", "name": "x", "low": -1.0, "high": 1.0, "edges": [0.0], "quantiles": [0.1, 0.5], "missing": true },
        { "type": "category", "name": "c", "categories": 2, "missing": true },
        { "type": "real", "name": "y", "low": -1.0, "high": 1.0 } ]);
    let trees = |method: &str, target: serde_json::Value| {
        json!({ "kind": "trees", "method": method, "target": target, "max_rows": 5, "trees": 2, "trees_per_round": 2, "depth": 2,
            "bins": 4, "sketch_rounds": 1, "columns": columns })
    };
    let categories = json!([{ "type": "category", "name": "a", "categories": 2 },
        { "type": "category", "name": "b", "categories": 3 }]);
    let specs = [
        json!({ "kind": "statistics", "max_rows": 5, "quantile_rounds": 2, "columns": statistics }),
        json!({ "kind": "k_means", "max_rows": 5, "clusters": 2, "iterations": 2, "columns": columns }),
        json!({ "kind": "contingency", "max_rows": 5, "columns": categories }),
        trees("forest", json!({ "type": "class", "classes": 3 })),
        trees("forest", json!({ "type": "real", "low": -1.0, "high": 1.0 })),
    ];
    let mut longest = Vec::new();
    for (index, spec) in specs.into_iter().enumerate() {
        let private = Private::new(spec, 40, CENTRAL, 8.0);
        let mut rng = ChaCha20Rng::seed_from_u64(index as u64);
        let mut of = |extreme: bool| {
            let width = if index == 2 { 2 } else { 3 };
            let mut cell = |row: usize, column: usize| match (index, column) {
                (2, 0) | (0, 1) => f64::from(u8::from(extreme || row.is_multiple_of(2))),
                (2, _) => (row % 3) as f64,
                (0, 0) if !extreme && row == 0 => f64::NAN,
                _ if extreme => 9.0,
                _ => 4.0 * unit(&mut rng) - 2.0,
            };
            // More rows than count.
            let values = (0..7).flat_map(|row| (0..width).map(move |column| (row, column)));
            let values =
                values.map(|(row, column)| if extreme { cell(0, column) } else { cell(row, column) }).collect();
            let table = Table::with_holes(width, values).unwrap();
            match index {
                3 => table
                    .with_targets((0..7).map(|row| if extreme { 2.0 } else { f64::from(row % 3) }).collect())
                    .unwrap(),
                4 => table.with_targets(vec![1.0; 7]).unwrap(),
                _ => table,
            }
        };
        let tables: Vec<Table> = (0..40).map(|at| of(at % 2 == 0)).collect();
        let (mut state, mut most) = (private.analysis.initial(), 0.0_f64);
        let mut rng = ChaCha20Rng::seed_from_u64(9);
        for _ in 0..private.analysis.rounds() {
            let form = private.analysis.private_form(&state).unwrap();
            for table in &tables {
                let delta = form.encode(&private.analysis.contribution(&state, table).unwrap()).unwrap();
                most = most.max(crate::clip::norm(&delta));
            }
            state = private.round(&state, &tables, &mut rng);
        }
        longest.push(most);
    }
    println!("longest forms: {longest:?}");
    assert!(longest.iter().all(|norm| (0.3..1.0001).contains(norm)), "{longest:?}");
}

#[test]
fn analyses_that_need_exact_sums_have_no_private_form() {
    let cox = json!({ "kind": "cox", "max_rows": 5, "columns": [
        { "type": "time", "name": "t", "step": 2.0, "steps": 5 }, { "type": "real", "name": "x", "low": 0.0, "high": 1.0 } ] });
    let analysis = Analysis::new(serde_json::from_value(cox).unwrap(), 32, 5).unwrap();
    assert_eq!(analysis.private_form(&analysis.initial()).unwrap_err(), AnalyticsError::NotPrivate);
}

/// Any sum of noise leads to a state that can be published and read.
#[test]
fn sums_of_noise_alone_end_in_a_state() {
    let columns = json!([{ "name": "x", "low": -1.0, "high": 1.0, "repeat": 2 }]);
    for spec in [
        age_spec(&[0.5]),
        json!({ "kind": "k_means", "max_rows": 1, "clusters": 3, "iterations": 2, "columns": columns }),
        json!({ "kind": "trees", "method": "boosting", "target": { "type": "class", "classes": 3 }, "max_rows": 1, "trees": 2,
            "depth": 2, "bins": 4, "columns": columns }),
        json!({ "kind": "contingency", "max_rows": 1, "columns": [
            { "type": "category", "name": "a", "categories": 2 }, { "type": "category", "name": "b", "categories": 2 } ] }),
    ] {
        let analysis = Analysis::new(serde_json::from_value(spec).unwrap(), 32, 10).unwrap();
        let mut rng = random(15);
        for size in [1e-3, 1.0, 1e6, 1e30] {
            let mut state = analysis.initial();
            for _ in 0..analysis.rounds() {
                #[expect(clippy::cast_possible_truncation, reason = "a number of any size")]
                let mean: Vec<f32> = (0..analysis.codec().values()).map(|_| (size * normal(&mut rng)) as f32).collect();
                let forms = NoisedForms { mean: &mean, cohort: 10.0, noise: size };
                state = analysis.advance_noised(&state, &forms).unwrap().state;
                assert_eq!(analysis.read_published(&state.to_bytes().unwrap()).unwrap(), state);
            }
            assert!(analysis.advance_noised(&state, &NoisedForms { mean: &[], cohort: 10.0, noise: size }).is_err());
        }
    }
}

#[test]
fn evaluation_of_ten_thousand_people_is_useful() {
    let spec = json!({ "kind": "evaluation", "max_rows": 1, "bins": 20, "target": { "type": "class", "classes": 2 } });
    let mut rng = random(21);
    let person = |rng: &mut ChaCha8Rng| {
        let score = 1.5 * normal(rng);
        let probability = 1.0 / (1.0 + (-score).exp());
        let class = f64::from(u8::from(unit(rng) < probability));
        Table::new(2, vec![1.0 - probability, probability]).unwrap().with_targets(vec![class]).unwrap()
    };
    let tables: Vec<Table> = (0..PEOPLE).map(|_| person(&mut rng)).collect();
    let figures = |state: AnalyticsState| match state {
        AnalyticsState::Evaluation(EvaluationState {
            figures: Some(EvaluationFigures::Classes(figures)),
            sites,
            ..
        }) => (figures, sites.len()),
        other => panic!("{other:?}"),
    };
    let (expected, _) = figures(exact(spec.clone(), &tables));
    for (mechanism, seed) in [(CENTRAL, 5), (SKELLAM, 6)] {
        let (found, sites) = figures(Private::new(spec.clone(), PEOPLE, mechanism, 1.0).run(&tables, seed));
        let auc = |figures: &ClassesFigures| figures.classes[1].auc.unwrap();
        println!(
            "accuracy {:.4} for {:.4}, AUC {:.4} for {:.4}",
            found.accuracy,
            expected.accuracy,
            auc(&found),
            auc(&expected)
        );
        assert!((found.accuracy - expected.accuracy).abs() < 0.01, "{found:?}");
        assert!((auc(&found) - auc(&expected)).abs() < 0.02, "{found:?}");
        assert_eq!((sites, found.classes[1].auc_error), (0, None), "noise has no bounds");
    }
}

//! Evaluations: figures of a federation are those of one table, up to the bins.

use serde_json::json;

use super::*;

fn classes_spec(classes: u32) -> serde_json::Value {
    json!({ "kind": "evaluation", "max_rows": 10_000, "target": { "type": "class", "classes": classes } })
}

/// Probabilities of a model that knows something, and true classes.
fn predictions(rows: usize, classes: usize, seed: u64) -> Table {
    let mut rng = random(seed);
    let (mut values, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let scores: Vec<f64> = (0..classes).map(|_| 1.5 * normal(&mut rng)).collect();
        let odds: Vec<f64> = scores.iter().map(|score| score.exp()).collect();
        let all: f64 = odds.iter().sum();
        let mut rest = unit(&mut rng) * all;
        let class = odds.iter().position(|odds| {
            rest -= odds;
            rest < 0.0
        });
        values.extend(odds.iter().map(|odds| odds / all));
        targets.push(class.unwrap_or_default() as f64);
    }
    Table::new(classes, values).unwrap().with_targets(targets).unwrap()
}

fn evaluation(state: AnalyticsState) -> EvaluationState {
    match state {
        AnalyticsState::Evaluation(state) => state,
        other => panic!("{other:?}"),
    }
}

fn of_classes(state: &EvaluationState) -> &ClassesFigures {
    match &state.figures {
        Some(EvaluationFigures::Classes(figures)) => figures,
        other => panic!("{other:?}"),
    }
}

/// The share of pairs with the positive above, ties as a half.
fn exact_area(table: &Table, class: usize) -> f64 {
    let of = |is_own: bool| {
        let rows = (0..table.rows()).filter(move |&row| (table.targets()[row] == class as f64) == is_own);
        rows.map(|row| table.row(row)[class]).collect::<Vec<_>>()
    };
    let (own, others) = (of(true), of(false));
    let order = |a: &f64, b: &f64| {
        if a > b {
            1.0
        } else if a == b {
            0.5
        } else {
            0.0
        }
    };
    let pairs: f64 = own.iter().map(|a| others.iter().map(|b| order(a, b)).sum::<f64>()).sum();
    pairs / (own.len() * others.len()) as f64
}

#[test]
fn class_figures_equal_those_of_one_table() {
    let table = predictions(2000, 3, 5);
    let analysis = Analysis::new(serde_json::from_value(classes_spec(3)).unwrap(), 32, 8).unwrap();
    let advanced = round(&analysis, &analysis.initial(), &deal(&table, 8));
    let pooled = round(&analysis, &analysis.initial(), std::slice::from_ref(&table));
    let state = evaluation(advanced.state);
    let figures = of_classes(&state);
    assert_eq!(figures, of_classes(&evaluation(pooled.state)));
    assert_eq!((state.rows, state.participants, &state.problem), (2000, 8, &None));
    let (mut right, mut loss, mut brier) = (0, 0.0, 0.0);
    for row in 0..table.rows() {
        let predicted = table.row(row);
        let class = (0..3).find(|&class| table.targets()[row] == class as f64).unwrap();
        let best = (0..3).max_by(|&a, &b| predicted[a].total_cmp(&predicted[b])).unwrap();
        right += u32::from(best == class);
        loss -= predicted[class].ln();
        brier += (0..3).map(|of| (predicted[of] - f64::from(u8::from(of == class))).powi(2)).sum::<f64>();
    }
    assert_eq!(figures.accuracy, f64::from(right) / 2000.0);
    assert!((figures.loss - loss / 2000.0).abs() < 1e-5, "{figures:?}");
    assert!((figures.brier - brier / 2000.0).abs() < 1e-5, "{figures:?}");
    for (class, found) in figures.classes.iter().enumerate() {
        let (auc, error) = (found.auc.unwrap(), found.auc_error.unwrap());
        assert!((auc - exact_area(&table, class)).abs() <= error && error < 0.01, "{auc} ± {error}");
        // The classes were drawn from these probabilities.
        assert!(found.calibration_error < 0.05, "{found:?}");
        assert!(found.calibration.iter().all(|group| (group.low..=group.high).contains(&group.predicted)));
        assert_eq!(found.recall, Some(figures.confusion[class][class] as f64 / found.rows as f64));
        let median = found.probability.iter().find(|quantile| quantile.of == 0.5).unwrap();
        let below = (0..table.rows())
            .filter(|&row| table.targets()[row] == class as f64 && table.row(row)[class] < median.high);
        assert!(2 * below.count() as u64 >= found.rows, "{median:?}");
    }
    let metrics: Vec<_> = advanced.metrics.iter().map(|(name, metric)| (&name[..], metric.count)).collect();
    assert_eq!(metrics, [("accuracy", 2000), ("loss", 2000), ("brier", 2000), ("auc", 2000)]);
}

#[test]
fn quartiles_of_sites_enclose_their_accuracies() {
    let tables: Vec<Table> = (0..9).map(|seed| predictions(60, 2, seed)).collect();
    let analysis = Analysis::new(serde_json::from_value(classes_spec(2)).unwrap(), 32, 9).unwrap();
    let state = evaluation(round(&analysis, &analysis.initial(), &tables).state);
    let accuracy = |table: &Table| {
        let is_right = |&row: &usize| (table.row(row)[1] > 0.5) == (table.targets()[row] == 1.0);
        (0..table.rows()).filter(is_right).count() as f64 / table.rows() as f64
    };
    let mut accuracies: Vec<f64> = tables.iter().map(accuracy).collect();
    accuracies.sort_by(f64::total_cmp);
    for (quartile, rank) in state.sites.iter().zip([3, 5, 7]) {
        let expected = accuracies[rank - 1];
        assert!(quartile.low <= expected + 1e-12 && expected <= quartile.high, "{quartile:?}: {accuracies:?}");
    }
    assert_eq!(state.sites.len(), 3);
    let four = evaluation(round(&analysis, &analysis.initial(), &tables[..4]).state);
    assert_eq!(four.sites, [], "four sites are fewer than min_count");
}

#[test]
fn small_classes_are_not_published() {
    let table = |targets: &[f64]| {
        let values = targets.iter().flat_map(|&class| [1.0 - 0.8 * class, 0.8 * class]).collect();
        Table::new(2, values).unwrap().with_targets(targets.to_vec()).unwrap()
    };
    let analysis = Analysis::new(serde_json::from_value(classes_spec(2)).unwrap(), 32, 4).unwrap();
    let evaluated = |targets: &[f64]| evaluation(round(&analysis, &analysis.initial(), &[table(targets)]).state);
    let rare = evaluated(&[[0.0; 20].as_slice(), &[1.0; 4]].concat());
    assert!(of_classes(&rare).confusion.is_empty() && of_classes(&rare).classes.is_empty());
    assert!(rare.problem.unwrap().contains("fewer than 5 rows (min_count)"));
    let enough = evaluated(&[[0.0; 20].as_slice(), &[1.0; 5]].concat());
    assert_eq!(of_classes(&enough).confusion, [[20, 0], [0, 5]]);
    let few = evaluated(&[0.0; 4]);
    assert_eq!((few.figures, few.rows), (None, 4));
    let absent = evaluated(&[0.0; 9]);
    assert_eq!((of_classes(&absent).classes[1].recall, of_classes(&absent).classes[0].auc), (None, None));
}

#[test]
fn figures_of_numbers_equal_those_of_one_table() {
    let mut rng = random(3);
    let (mut values, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..3000 {
        let target = 60.0 + 15.0 * normal(&mut rng);
        targets.push(target.clamp(0.0, 120.0));
        values.push(targets[targets.len() - 1] + 5.0 * normal(&mut rng) - 1.0);
    }
    let table = Table::new(1, values.clone()).unwrap().with_targets(targets.clone()).unwrap();
    let spec = json!({ "kind": "evaluation", "max_rows": 10_000, "bins": 200,
        "target": { "type": "real", "low": 0.0, "high": 120.0 } });
    let analysis = Analysis::new(serde_json::from_value(spec).unwrap(), 32, 6).unwrap();
    let state = evaluation(round(&analysis, &analysis.initial(), &deal(&table, 6)).state);
    let Some(EvaluationFigures::Number(figures)) = &state.figures else { panic!("{state:?}") };
    let errors: Vec<f64> = values.iter().zip(&targets).map(|(value, target)| value - target).collect();
    let mean = |of: &dyn Fn(f64) -> f64, all: &[f64]| all.iter().map(|&value| of(value)).sum::<f64>() / 3000.0;
    let squares = mean(&|error| error * error, &errors);
    let average = mean(&|target| target, &targets);
    let spread = mean(&|target| (target - average).powi(2), &targets);
    for (found, expected) in [
        (figures.rmse, squares.sqrt()),
        (figures.mae, mean(&f64::abs, &errors)),
        (figures.bias, mean(&|error| error, &errors)),
        (figures.r2.unwrap(), 1.0 - squares / spread),
    ] {
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let median = figures.errors[1];
    assert!(median.low <= sizes[1499] && sizes[1499] <= median.high && median.high - median.low < 0.5, "{median:?}");
    assert!(figures.calibration.len() >= 5);
    for group in &figures.calibration {
        let rows = values.iter().zip(&targets).filter(|(value, _)| **value >= group.low && **value < group.high);
        let (count, sum) = rows.fold((0_u64, 0.0), |(count, sum), (_, target)| (count + 1, sum + target));
        assert_eq!(group.rows, count);
        assert!((group.observed - sum / count as f64).abs() < 0.01, "{group:?}");
    }
    assert_eq!(figures.clipped, 0);
}

#[test]
fn what_is_no_prediction_is_refused() {
    let analysis: AnalyticsSpec = serde_json::from_value(classes_spec(2)).unwrap();
    let table =
        |values: &[f64], target: f64| Table::new(2, values.to_vec()).unwrap().with_targets(vec![target]).unwrap();
    for (table, why) in [
        (table(&[0.5, 1.5], 0.0), "a probability from 0 to 1"),
        (table(&[0.5, 0.4], 0.0), "1 as the sum"),
        (table(&[0.5, 0.5], 2.0), "none of the classes 0 to 1"),
        (Table::new(1, vec![0.5]).unwrap().with_targets(vec![0.0]).unwrap(), "got 1 where 2"),
        (Table::new(2, vec![0.5, 0.5]).unwrap(), "targets: got 0 where 1"),
    ] {
        let error = analysis.check(&table).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(
        refusal(json!({ "kind": "evaluation", "max_rows": 9 }), 32, 3).contains("must say what the model predicts")
    );
    let one = json!({ "kind": "evaluation", "max_rows": 9, "target": { "type": "class", "classes": 1 } });
    assert!(refusal(one, 32, 3).contains("2 to 1000"));
}

#[test]
fn a_state_carries_its_model() {
    let state = EvaluationState::of_model(b"a model").unwrap();
    assert_eq!(state.model_file().unwrap(), b"a model");
    let analysis = Analysis::new(serde_json::from_value(classes_spec(2)).unwrap(), 32, 3).unwrap();
    let bytes = AnalyticsState::Evaluation(state).to_bytes().unwrap();
    let read = analysis.read_published(&bytes).unwrap();
    let measured = evaluation(round(&analysis, &read, &[predictions(50, 2, 1)]).state);
    assert!(measured.model_file().unwrap_err().to_string().contains("no model"), "the result is without it");
}

#[test]
fn a_private_contribution_is_at_most_of_length_one() {
    let real = json!({ "kind": "evaluation", "max_rows": 50, "target": { "type": "real", "low": -1.0, "high": 1.0 } });
    let mut classes = classes_spec(3);
    classes["max_rows"] = json!(50);
    // Everything in one bin, as far off as can be.
    let certain = Table::new(3, [0.0, 1.0, 0.0].repeat(50)).unwrap().with_targets(vec![0.0; 50]).unwrap();
    let wrong = Table::new(1, vec![9.0; 50]).unwrap().with_targets(vec![1.0; 50]).unwrap();
    for (spec, table) in [(classes, certain), (real, wrong)] {
        let analysis = Analysis::new(serde_json::from_value(spec).unwrap(), 32, 10).unwrap();
        let state = analysis.initial();
        let form = analysis.private_form(&state).unwrap();
        let vector = form.encode(&analysis.contribution(&state, &table).unwrap()).unwrap();
        let length = vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
        assert!(length <= 1.0 + 1e-6 && length > 0.5, "{length}");
        // A sum without participants is repaired, not an error.
        let zeros = vec![-0.01; vector.len()];
        let forms = NoisedForms { mean: &zeros, cohort: 10.0, noise: 0.1 };
        let advanced = analysis.advance_noised(&state, &forms).unwrap().state;
        assert_eq!(analysis.read_published(&advanced.to_bytes().unwrap()).unwrap(), advanced);
    }
}

//! The promised figures: a federation compared with all rows in one place, computed by other code.

use super::*;

/// Weighted Lloyd with k-means++ from `draws` draws, on all rows at once; the best inertia.
fn pooled_inertia(rows: &[Vec<f64>], clusters: usize, draws: u64) -> f64 {
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let nearest = |centres: &[Vec<f64>], row: &[f64]| {
        let all = centres.iter().map(|centre| distance(centre, row)).enumerate();
        all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
    };
    let one = |seed| {
        let mut rng = random(seed);
        let mut centres: Vec<Vec<f64>> = vec![rows[0].clone()];
        while centres.len() < clusters {
            let costs: Vec<f64> = rows.iter().map(|row| nearest(&centres, row).1).collect();
            let mut left = unit(&mut rng) * costs.iter().sum::<f64>();
            let chosen = costs.iter().position(|cost| {
                left -= cost;
                left < 0.0
            });
            centres.push(rows[chosen.unwrap()].clone());
        }
        let mut inertia = f64::INFINITY;
        loop {
            let found: Vec<_> = rows.iter().map(|row| nearest(&centres, row)).collect();
            let total: f64 = found.iter().map(|(_, cost)| cost).sum();
            if total > inertia * (1.0 - 1e-9) {
                return total;
            }
            inertia = total;
            for (index, centre) in centres.iter_mut().enumerate() {
                let own: Vec<_> =
                    rows.iter().zip(&found).filter(|(_, found)| found.0 == index).map(|(row, _)| row).collect();
                if !own.is_empty() {
                    *centre = (0..centre.len())
                        .map(|c| own.iter().map(|row| row[c]).sum::<f64>() / own.len() as f64)
                        .collect();
                }
            }
        }
    };
    (0..draws).map(one).fold(f64::INFINITY, f64::min)
}

#[test]
fn k_means_inertia_is_within_one_per_cent_of_pooled_k_means() {
    for (clusters, width, spread, seed) in [(8, 2, 0.6, 1), (10, 16, 1.0, 2), (20, 3, 0.8, 3), (12, 8, 3.0, 4)] {
        let mut rng = random(seed);
        let centres: Vec<Vec<f64>> =
            (0..clusters).map(|_| (0..width).map(|_| 16.0 * unit(&mut rng) - 8.0).collect()).collect();
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for row in 0..2400 {
            // Sorted by cluster, so that participants hold unlike rows.
            let centre: &Vec<f64> = &centres[row * clusters / 2400];
            rows.push(centre.iter().map(|value| (value + spread * normal(&mut rng)).clamp(-15.0, 15.0)).collect());
        }
        let columns = vec![column("x", -15.0, 15.0, u32::try_from(width).unwrap())];
        let spec =
            KMeansSpec { max_rows: 100, columns, clusters: u32::try_from(clusters).unwrap(), iterations: 12, seed: 1 };
        let analysis = Analysis::new(AnalyticsSpec::KMeans(spec), 32, 40).unwrap();
        let table = Table::new(width, rows.concat()).unwrap();
        let AnalyticsState::KMeans(found) = run(&analysis, &deal(&table, 30)) else { panic!("k-means") };
        let (federated, pooled) = (found.inertia.unwrap(), pooled_inertia(&rows, clusters, 10));
        println!(
            "k = {clusters}, {width} columns: federated {federated:.1}, pooled {pooled:.1}: {:+.2} %",
            100.0 * (federated / pooled - 1.0)
        );
        assert!(federated <= 1.01 * pooled, "{federated} against {pooled}");
    }
}

/// Boosting on all rows at once: thresholds at every value, gradients in full precision, one class against the other.
struct Reference {
    base: f64,
    trees: Vec<Node>,
}

enum Node {
    Leaf(f64),
    Cut { column: usize, threshold: f64, sides: Box<[Node; 2]> },
}

impl Node {
    fn value(&self, row: &[f64]) -> f64 {
        match self {
            Self::Leaf(value) => *value,
            Self::Cut { column, threshold, sides } => sides[usize::from(row[*column] >= *threshold)].value(row),
        }
    }

    fn grow(table: &Table, rows: &[usize], derivatives: &[(f64, f64)], depth: u32) -> Self {
        let sum = |rows: &[usize]| {
            rows.iter().fold((0.0, 0.0), |(g, h), &row| (g + derivatives[row].0, h + derivatives[row].1))
        };
        let score = |(g, h): (f64, f64)| g * g / (h + 1.0);
        let total = sum(rows);
        let mut best = (1e-9, 0, 0.0);
        for column in 0..if depth > 0 { table.width() } else { 0 } {
            let mut order = rows.to_vec();
            order.sort_by(|&a, &b| table.row(a)[column].total_cmp(&table.row(b)[column]));
            let mut below = (0.0, 0.0);
            for pair in order.windows(2) {
                below = (below.0 + derivatives[pair[0]].0, below.1 + derivatives[pair[0]].1);
                let above = (total.0 - below.0, total.1 - below.1);
                let (low, high) = (table.row(pair[0])[column], table.row(pair[1])[column]);
                let gain = score(below) + score(above) - score(total);
                if low < high && below.1 >= 1.0 && above.1 >= 1.0 && gain > best.0 {
                    best = (gain, column, f64::midpoint(low, high));
                }
            }
        }
        let (gain, column, threshold) = best;
        if gain <= 1e-9 {
            return Self::Leaf(-0.3 * total.0 / (total.1 + 1.0));
        }
        let (below, above): (Vec<usize>, Vec<usize>) =
            rows.iter().partition(|&&row| table.row(row)[column] < threshold);
        let side = |rows: &[usize]| Self::grow(table, rows, derivatives, depth - 1);
        Self::Cut { column, threshold, sides: Box::new([side(&below), side(&above)]) }
    }
}

impl Reference {
    fn train(table: &Table, trees: usize, depth: u32) -> Self {
        let share = table.targets().iter().sum::<f64>() / table.rows() as f64;
        let mut model = Self { base: (share / (1.0 - share)).ln(), trees: Vec::new() };
        let rows: Vec<usize> = (0..table.rows()).collect();
        for _ in 0..trees {
            let derivative = |&row: &usize| {
                let p = 1.0 / (1.0 + (-model.score(table.row(row))).exp());
                (p - table.targets()[row], p * (1.0 - p))
            };
            let derivatives: Vec<_> = rows.iter().map(derivative).collect();
            model.trees.push(Node::grow(table, &rows, &derivatives, depth));
        }
        model
    }

    fn score(&self, row: &[f64]) -> f64 {
        self.base + self.trees.iter().map(|tree| tree.value(row)).sum::<f64>()
    }
}

/// Ten columns of different scales; the target depends on products, thresholds and a rare corner.
fn hard(rows: usize, seed: u64, classes: usize) -> Table {
    let mut rng = random(seed);
    let mut made: Vec<(Vec<f64>, f64)> = Vec::new();
    for _ in 0..rows {
        let z: Vec<f64> = (0..10).map(|_| normal(&mut rng)).collect();
        let signal =
            z[0] * z[1] + f64::from(z[2] > 0.3) * 1.5 - 0.8 + 0.5 * (2.0 * z[3]).sin() + 0.3 * normal(&mut rng);
        let class = match classes {
            2 => f64::from(signal > 0.0),
            _ => f64::from(u8::from(signal > -0.8) + u8::from(signal > 0.2) + u8::from(signal > 1.0)),
        };
        let row = z.iter().enumerate().map(|(i, z)| if i % 2 == 0 { *z } else { (0.7 * z).exp() * 100.0 });
        // Columns 1 and 3 are skewed; the signal above used them before.
        made.push((row.collect(), class));
    }
    // Sorted by class, so that participants hold unlike rows.
    made.sort_by(|a, b| a.1.total_cmp(&b.1));
    let targets = made.iter().map(|(_, class)| *class).collect();
    Table::new(10, made.into_iter().flat_map(|(row, _)| row).collect()).unwrap().with_targets(targets).unwrap()
}

fn trees(method: Method, classes: u32, max_rows: u32, cohort: u32) -> Analysis {
    let pair = [column("z", -5.0, 5.0, 1), column("e", 0.0, 10_000.0, 1)];
    let columns = (0..5).flat_map(|_| pair.clone()).collect();
    let forest = method == Method::Forest;
    let spec = TreesSpec {
        method,
        max_rows,
        columns,
        target: TargetSpec::Class { classes },
        trees: if forest { 40 } else { 30 },
        depth: if forest { 7 } else { 4 },
        bins: 32,
        sketch_rounds: 3,
        learning_rate: None,
        l2: None,
        min_child_weight: 1.0,
        min_gain: 0.0,
        row_fraction: None,
        column_fraction: forest.then_some(0.5),
        trees_per_round: if forest { 10 } else { 1 },
        seed: 9,
    };
    Analysis::new(AnalyticsSpec::Trees(spec), 32, cohort).unwrap()
}

fn right(table: &Table, class: impl Fn(&[f64]) -> f64) -> f64 {
    let right = (0..table.rows()).filter(|&row| class(table.row(row)) == table.targets()[row]).count();
    right as f64 / table.rows() as f64
}

fn federated(method: Method, classes: u32, train: &Table, test: &Table, participants: u32) -> f64 {
    let max_rows = u32::try_from(train.rows()).unwrap() / participants;
    let analysis = trees(method, classes, max_rows, participants);
    let AnalyticsState::Trees(state) = run(&analysis, &deal(train, participants as usize)) else { panic!("trees") };
    right(test, |row| state.ensemble.predict(row).value())
}

#[test]
fn federated_boosting_is_within_one_point_of_pooled_boosting() {
    let (train, test) = (hard(3000, 1, 2), hard(2000, 2, 2));
    let many = federated(Method::Boosting, 2, &train, &test, 50);
    let one = federated(Method::Boosting, 2, &train, &test, 1);
    let reference = Reference::train(&train, 30, 4);
    let exact = right(&test, |row| f64::from(reference.score(row) > 0.0));
    println!("boosting, 2 classes: federated {many:.4}, pooled {one:.4}, pooled with exact thresholds {exact:.4}");
    assert!(many >= one - 0.01 && many >= exact - 0.01, "{many} against {one} and {exact}");
    assert!(exact > 0.8, "there is something to learn");

    let (train, test) = (hard(2000, 3, 4), hard(2000, 4, 4));
    let many = federated(Method::Boosting, 4, &train, &test, 40);
    let one = federated(Method::Boosting, 4, &train, &test, 1);
    println!("boosting, 4 classes: federated {many:.4}, pooled {one:.4}");
    assert!(many >= one - 0.01 && many > 0.55, "{many} against {one}");
}

#[test]
fn a_federated_forest_is_within_one_point_of_a_pooled_one() {
    let (train, test) = (hard(3000, 1, 2), hard(2000, 2, 2));
    let many = federated(Method::Forest, 2, &train, &test, 50);
    let one = federated(Method::Forest, 2, &train, &test, 1);
    println!("forest, 2 classes: federated {many:.4}, pooled {one:.4}");
    assert!(many >= one - 0.01 && many > 0.78, "{many} against {one}");
}

//! Untrusted analytics states. An accepted state round-trips, and both sides handle it without a panic: rows can be added, the sum opened
//! and the next state published.

use learning::ExactSum;
use learning::analytics::{Analysis, AnalyticsSpec, AnalyticsState, Table};

/// One analysis of each kind, as small as possible.
fn analyses() -> Vec<Analysis> {
    let columns = r#"[{"name":"x","low":-1,"high":1,"repeat":2}]"#;
    let class = r#"{"type":"class","classes":3}"#;
    let real = r#"{"type":"real","low":0,"high":3}"#;
    let trees = r#""max_rows":8,"trees":3,"depth":2,"bins":4,"sketch_rounds":1"#;
    let number = r#"[{"type":"real","name":"x","low":-1,"high":2}]"#;
    let (group, time) =
        (r#"{"type":"category","name":"g","categories":2}"#, r#"{"type":"time","name":"t","step":0.5,"steps":3}"#);
    let specs = [
        r#"{"kind":"statistics","max_rows":8,"columns":[{"type":"real","name":"x","low":-1,"high":1,"edges":[0.0],"quantiles":[0.5]},{"type":"category","name":"c","categories":2}]}"#.to_owned(),
        format!(r#"{{"kind":"k_means","max_rows":8,"columns":{columns},"clusters":2,"iterations":2}}"#),
        format!(r#"{{"kind":"trees","method":"boosting",{trees},"columns":{columns},"target":{class}}}"#),
        format!(r#"{{"kind":"trees","method":"forest",{trees},"columns":{columns},"target":{real},"trees_per_round":2}}"#),
        format!(r#"{{"kind":"regression","max_rows":8,"columns":{number},"target":{{"type":"count","high":3}},"iterations":3}}"#),
        format!(r#"{{"kind":"regression","max_rows":8,"columns":{number},"target":{real},"iterations":1}}"#),
        format!(r#"{{"kind":"cox","max_rows":8,"columns":[{},{time}],"iterations":2}}"#, &number[1..number.len() - 1]),
        format!(r#"{{"kind":"survival","max_rows":8,"columns":[{group},{time}],"min_count":1}}"#),
        format!(r#"{{"kind":"contingency","max_rows":8,"columns":[{group},{group}],"min_count":1}}"#),
    ];
    let analysis = |text: &String| {
        let spec: AnalyticsSpec = serde_json::from_str(text).expect("a specification");
        Analysis::new(spec, 24, 5).expect("one that can be")
    };
    specs.iter().map(analysis).collect()
}

/// Rows that fit an analysis.
fn table(analysis: &Analysis) -> Table {
    let wide = || Table::new(2, vec![-0.5, 0.0, 0.25, 1.0, 9.0, -9.0, 0.5, 1.0]).unwrap();
    let narrow = || Table::new(1, vec![-0.5, 0.25, 2.0, 1.0]).unwrap();
    let groups = || Table::new(2, vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]).unwrap();
    let with = |table: Table, targets: [f64; 4]| table.with_targets(targets.to_vec()).unwrap();
    match analysis.initial() {
        AnalyticsState::Regression(_) => with(narrow(), [0.0, 1.0, 2.0, 1.0]),
        AnalyticsState::Cox(_) => {
            with(Table::new(2, vec![-0.5, 0.0, 0.25, 1.0, 2.0, 9.0, 0.5, 1.0]).unwrap(), [1.0; 4])
        }
        AnalyticsState::Survival(_) => with(groups(), [0.0, 1.0, 1.0, 1.0]),
        AnalyticsState::Contingency(_) => groups(),
        _ => with(wide(), [0.0, 1.0, 2.0, 1.0]),
    }
}

fn next(analysis: &Analysis, state: &AnalyticsState) -> Option<Vec<u8>> {
    let codec = analysis.codec();
    let values = analysis.contribution(state, &table(analysis)).ok()?;
    let words = codec.encode(&values).expect("a contribution is within its bounds");
    let sum = ExactSum::new(words, codec.modulus_bits(), 1).unwrap().release_without_noise();
    assert_eq!(codec.decode(&sum).unwrap(), values);
    let advanced = analysis.advance(state, &sum).ok()?;
    Some(advanced.state.to_bytes().expect("a state can be written"))
}

pub fn run(data: &[u8]) {
    for analysis in analyses() {
        let Ok(state) = analysis.read(data) else { continue };
        let bytes = state.to_bytes().expect("what was read can be written");
        assert_eq!(analysis.read(&bytes).expect("and read again"), state);
        if let Some(bytes) = next(&analysis, &state) {
            analysis.read(&bytes).expect("the next state can be read");
        }
    }
}

/// Every state of every analysis.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for analysis in analyses() {
        let mut bytes = analysis.initial().to_bytes().expect("a state can be written");
        while let Some(after) = next(&analysis, &analysis.read(&bytes).expect("a state")) {
            seeds.push(std::mem::replace(&mut bytes, after));
        }
        seeds.push(bytes);
    }
    seeds
}

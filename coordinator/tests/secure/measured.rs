//! Metrics of a round in `/metrics`.

use std::collections::BTreeMap;

use federation::round::RoundState;
use wire::route;

use crate::support::secure::{Drops, World};

/// Every series by its name and labels.
async fn series(world: &World) -> BTreeMap<String, f64> {
    let text = String::from_utf8(world.t.get(&world.t.viewer, route::METRICS).await.body).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Bounds and counts of the buckets of a histogram, by rising bounds. `head` is its name with labels, up to the bound.
fn buckets(series: &BTreeMap<String, f64>, head: &str) -> Vec<(f64, f64)> {
    let of = |name: &str| name.strip_prefix(head)?.strip_prefix(",le=\"")?.strip_suffix("\"}")?.parse::<f64>().ok();
    let mut found: Vec<(f64, f64)> = series.iter().filter_map(|(name, count)| Some((of(name)?, *count))).collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found
}

#[tokio::test]
async fn a_round_tells_of_its_phases_steps_drops_and_devices() {
    let mut world = World::new(5).await;
    let before = series(&world).await;
    let drops = [Drops::Never, Drops::Shares, Drops::Never, Drops::Never, Drops::Answer];
    assert_eq!(world.run(1, &drops).await.state, RoundState::Completed);
    let after = series(&world).await;
    // The recorder belongs to the process: other tests may add to it.
    let grown = |name: &str| {
        let value = |at: &BTreeMap<String, f64>| at.get(name).copied().unwrap_or(0.0);
        value(&after) - value(&before)
    };
    for state in ["SELECTING", "SHARING", "COLLECTING", "CONFIRMING", "UNMASKING", "AGGREGATING"] {
        assert!(grown(&format!("tributary_round_phase_seconds_count{{phase=\"{state}\"}}")) >= 1.0, "{state}");
        // A histogram, not a summary: buckets are cumulative, and the last one counts all.
        let counts = buckets(&after, &format!("tributary_round_phase_seconds_bucket{{phase=\"{state}\""));
        assert!(counts.len() > 10 && counts.is_sorted_by_key(|bucket| bucket.1), "{state}: {counts:?}");
        let all = after[&format!("tributary_round_phase_seconds_count{{phase=\"{state}\"}}")];
        assert_eq!(counts.last(), Some(&(f64::INFINITY, all)), "{state}");
        assert!(counts[0].0 <= 0.001 && counts[counts.len() - 2].0 >= 3600.0, "{state}: {counts:?}");
    }
    for step in ["open_round", "close_phase", "release_sum", "publish_version"] {
        assert!(grown(&format!("tributary_step_seconds_count{{step=\"{step}\"}}")) >= 1.0, "{step}: {after:?}");
    }
    for phase in ["SHARING", "UNMASKING"] {
        let name = format!("tributary_participants_dropped_total{{phase=\"{phase}\",reason=\"late\"}}");
        assert!(grown(&name) >= 1.0, "{phase}: {after:?}");
    }
    for operation in ["sum", "unmask"] {
        let device = |name: &&String| {
            name.starts_with("tributary_device_seconds_count{")
                && name.ends_with(&format!("operation=\"{operation}\"}}"))
        };
        assert!(after.keys().filter(device).any(|name| grown(name) >= 1.0), "{operation}: {after:?}");
    }
    // Sums of this or a concurrent test may be over; at least one existed.
    let peak = |name: &&String| name.starts_with("tributary_device_memory_peak_bytes{device=");
    assert!(after.keys().filter(peak).any(|name| after[name] >= 16.0), "{after:?}");
    assert!(after.keys().any(|name| name.starts_with("tributary_device_memory_bytes{device=")), "{after:?}");
    #[cfg(target_os = "linux")]
    assert!(after["process_resident_memory_bytes"] > 1e6);
}

//! Limits of each phase of a round, derived from the task.

use federation::groups::GroupLimits;
use federation::round::{PhaseLimits, RoundLimits, SecureLimits};
use task_spec::TaskSpec;

fn limits(more: &str) -> RoundLimits {
    let text = format!("name = \"t\"\n[model]\ntensors = [{{ name = \"w\", shape = [3] }}]\n{more}");
    RoundLimits::of(&toml::from_str::<TaskSpec>(&text).unwrap())
}

#[test]
fn what_a_task_leaves_out_follows_from_its_cohort() {
    assert_eq!(
        limits(""),
        RoundLimits {
            select: PhaseLimits { min: 10, max: 1024, deadline_ms: 600_000 },
            collect: PhaseLimits { min: 5, max: 1024, deadline_ms: 600_000 },
            aggregate_deadline_ms: 600_000,
            sampled: None,
            round_trip_ms: None,
            secure: Some(SecureLimits {
                threshold: 0,
                share_deadline_ms: 60_000,
                confirm_deadline_ms: 60_000,
                unmask_deadline_ms: 60_000,
            }),
            groups: None,
        }
    );
    let groups = limits("[aggregation]\nrobust = { rule = \"median\", attackers = 0.05, group_size = 3 }").groups;
    assert_eq!(groups, Some(GroupLimits { size: 3, count: 0, needed: 0, collect_min: 0 }));
    assert_eq!(limits("[secure_aggregation]\nenabled = false").secure, None);
}

//! Coordinators and relays of regions that are killed.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_servers::postgres::{Cluster, Options};

use super::{DEVICES, Federation, POLLS, configured, coordinator, task, versions, wait_for_versions};
use crate::kills::Moments;
use crate::replicas::address;
use crate::support::{Served, number};

/// The coordinator of a folder, killed and started again.
fn killed_and_restarted(served: Served, folder: &Path) -> Served {
    let listen = address(&served);
    let Served { process, token, .. } = served;
    drop(process);
    let again = match folder.join("coordinator.toml").exists() {
        true => configured(folder, &listen),
        false => Served::dev_at(&listen, &folder.join("data"), POLLS),
    };
    Served { token, ..again }
}

/// Three regions with two regional rounds each.
fn of_two_rounds<'a>(upper: &'a Served, through: &'a str, cluster: Option<&'a Cluster>) -> Federation<'a> {
    Federation { upper, task: Some("upper"), regions: 3, through, flags: &["--rounds", "2"], cluster }
}

/// The versions of an upper task whose processes but the devices are killed so often within this time, and its duration.
fn killed(
    folder: &Path,
    kills: u64,
    within: Duration,
    rounds: u32,
    cluster: Option<&Cluster>,
) -> (Vec<Value>, Duration) {
    std::fs::create_dir_all(folder).unwrap();
    let served = coordinator(folder, cluster);
    served.operate(&["task", "create", &task(folder, "upper", 3, rounds, "")]).data();
    let through = task(folder, "through", DEVICES, 1, "");
    let mut upper = Some(served);
    let mut regions = of_two_rounds(upper.as_ref().unwrap(), &through, cluster).all(folder);
    for region in &regions {
        region.event("regional_task");
    }
    let began = Instant::now();
    let mut moments = Moments::new(number("TRIBUTARY_KILL_SEED", 1));
    let longest_ms = (u64::try_from(within.as_millis()).unwrap() / kills.max(1)).max(1);
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(moments.below(longest_ms)));
        let ended = versions(upper.as_ref().unwrap(), "upper").len() > rounds as usize;
        assert!(!ended, "the task was over after {kill} kills");
        let index = usize::try_from(moments.below(3)).unwrap();
        match moments.below(3) {
            0 => upper = upper.take().map(|served| killed_and_restarted(served, folder)),
            1 => {
                let region = &mut regions[index];
                region.served = region.served.take().map(|served| killed_and_restarted(served, &region.folder));
            }
            _ => {
                // Dropped first: its journal is locked.
                regions[index].relay = None;
                let federation = of_two_rounds(upper.as_ref().unwrap(), &through, cluster);
                regions[index].relay = Some(federation.relay(&regions[index], None));
            }
        }
    }
    let upper = upper.unwrap();
    wait_for_versions(&upper, rounds as usize + 1, &regions);
    let duration = began.elapsed();
    for region in &mut regions {
        assert_eq!(region.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", region.said());
        assert_eq!(region.tasks().len(), rounds as usize, "one regional task for each round: {}", region.said());
    }
    (versions(&upper, "upper"), duration)
}

/// Kills coordinators, on this server or on SQLite, and relays; compares the models with those of an undisturbed run on SQLite.
/// Returns what it did, in words.
fn compare_with_undisturbed(kills: u64, cluster: Option<&Cluster>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let rounds = u32::try_from(kills / 2).unwrap().max(2);
    let (expected, within) = killed(&folder.path().join("undisturbed"), 0, Duration::ZERO, rounds, None);
    // Kills take time, too, so all of them happen before the end.
    let (versions, duration) = killed(&folder.path().join("killed"), kills, within, rounds, cluster);
    assert_eq!(versions, expected);
    format!(
        "{kills} kills in {rounds} rounds, {:.0} s: the versions are those of an undisturbed run of {:.0} s",
        duration.as_secs_f64(),
        within.as_secs_f64()
    )
}

#[test]
fn coordinators_and_relays_that_are_killed_publish_the_same_models() {
    println!("{}", compare_with_undisturbed(number("TRIBUTARY_KILLS", 8), None));
}

#[test]
fn coordinators_on_postgres_and_relays_that_are_killed_publish_the_same_models() {
    let Some(cluster) = Cluster::start(Options::default()) else { return };
    println!("{}", compare_with_undisturbed(number("TRIBUTARY_KILLS", 4), Some(&cluster)));
}

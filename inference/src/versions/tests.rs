//! Versions from use to nothing, by hand and by chance.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const AT_ONCE: Rollout = Rollout {
    canary_percent: 0.0,
    hold: Duration::from_secs(60),
    abort: crate::rollout::Abort {
        min_requests: 10,
        error_rate: 0.01,
        p99: Duration::from_millis(50),
        disagreement: 0.2,
    },
};
const TRIED: Rollout = Rollout { canary_percent: 20.0, ..AT_ONCE };

fn warm() -> Warm {
    Warm::judge(&[0.5], &[1.0, 2.0], 1, 2).unwrap()
}

fn held(version: u32) -> LoadedVersion<&'static str> {
    LoadedVersion { version, model: "a model" }
}

fn at(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

#[test]
fn what_is_not_finite_never_becomes_warm() {
    assert_eq!(Warm::judge(&[0.0], &[f32::NAN, 1.0], 1, 2).unwrap_err(), Unfit::NotFinite);
    assert_eq!(Warm::judge(&[0.0], &[f32::INFINITY, 1.0], 1, 2).unwrap_err(), Unfit::NotFinite);
    assert_eq!(Warm::judge(&[f32::NAN], &[0.0, 1.0], 1, 2).unwrap_err(), Unfit::Parameters);
    let unfit = Warm::judge(&[0.0], &[0.0, 1.0, 2.0], 1, 2).unwrap_err();
    assert_eq!(unfit, Unfit::Scores { examples: 1, found: 3, expected: 2 });
}

#[test]
fn a_swap_drains_the_old_one_and_waits_for_it_before_the_next() {
    let mut versions = Versions::new(None, BTreeSet::new());
    assert!(versions.has_room());
    assert_eq!(versions.place(held(1), warm(), at(0), &AT_ONCE, false), Placed::Stable { before: None });
    assert!(versions.has_room());
    assert_eq!(versions.place(held(2), warm(), at(1), &AT_ONCE, false), Placed::Stable { before: Some(1) });
    assert_eq!(versions.draining().map(|held| held.version), Some(1));
    assert!(versions.at(1).is_none(), "what is drained takes nothing new");
    assert!(!versions.has_room(), "two are in memory");
    versions.drained();
    assert!(versions.has_room());
    assert_eq!((versions.previous(), versions.answering()), (Some(1), vec![2]));
}

#[test]
fn a_canary_is_promoted_taken_back_or_overtaken_by_a_restored_one() {
    let mut versions = Versions::new(None, BTreeSet::new());
    assert_eq!(
        versions.place(held(1), warm(), at(0), &TRIED, false),
        Placed::Stable { before: None },
        "nothing to go back to"
    );
    assert_eq!(versions.place(held(2), warm(), at(0), &TRIED, false), Placed::Canary);
    assert_eq!(versions.route(0, &TRIED).map(|held| held.version), Some(2));
    assert_eq!(versions.route(u64::MAX, &TRIED).map(|held| held.version), Some(1));
    assert_eq!(versions.judge(at(59), &TRIED), Some((2, Verdict::Hold(at(60)))));
    assert_eq!(versions.canary_ends(&TRIED), Some(at(60)));
    assert_eq!(versions.judge(at(60), &TRIED), Some((2, Verdict::Promote)));
    assert_eq!((versions.answering(), versions.previous()), (vec![2], Some(1)));
    assert_eq!(versions.canary_ends(&TRIED), None);
    versions.drained();

    versions.place(held(3), warm(), at(61), &TRIED, false);
    let watch = versions.watch(3).unwrap();
    watch.compare(&[0; 20], &[1; 20]);
    assert!(matches!(versions.judge(at(62), &TRIED), Some((3, Verdict::TakeBack(_)))));
    assert!(versions.answering() == [2] && !versions.wants(3) && versions.wants(4));
    versions.drained();

    versions.place(held(4), warm(), at(63), &TRIED, false);
    assert!(!versions.has_room(), "newer ones wait until it is judged");
    versions.overtake();
    assert!(!versions.has_room(), "the one that is overtaken is drained first");
    versions.drained();
    assert!(versions.has_room());
    assert_eq!(versions.place(held(5), warm(), at(64), &TRIED, true), Placed::Stable { before: Some(2) });
    assert!(!versions.refused().contains(&4));
}

#[test]
fn a_way_back_is_there_once_and_what_was_left_is_not_used_again() {
    let mut versions = Versions::new(None, BTreeSet::new());
    versions.place(held(1), warm(), at(0), &AT_ONCE, false);
    assert_eq!(versions.roll_back(&[]), Err(NoWayBack::None));
    assert_eq!(versions.roll_back(&[2, 1, 0]), Ok(WayBack::To(vec![0])), "what is older, if nothing was used before");
    versions.place(held(2), warm(), at(1), &AT_ONCE, false);
    versions.drained();
    assert_eq!(versions.roll_back(&[]), Ok(WayBack::To(vec![1])));
    assert_eq!(versions.roll_back(&[0, 1, 2, 3]), Ok(WayBack::To(vec![1, 0])), "and others, if it is damaged");
    versions.go_back(held(1), warm());
    assert_eq!(versions.answering(), [1]);
    assert!(!versions.wants(2) && versions.wants(3), "only what is newer than what was left");
    assert_eq!(versions.roll_back(&[]), Err(NoWayBack::None), "it does not go to and fro");
    versions.drained();
    assert_eq!(versions.roll_back(&[5, 2]), Err(NoWayBack::None));
    versions.place(held(3), warm(), at(2), &TRIED, false);
    assert_eq!(versions.roll_back(&[]), Ok(WayBack::Canary), "a canary is taken back without another");
    assert!(versions.answering() == [1] && !versions.wants(3));
}

#[test]
fn a_version_in_between_does_not_undo_what_was_taken_back() {
    let mut versions = Versions::new(None, BTreeSet::new());
    versions.place(held(1), warm(), at(0), &AT_ONCE, false);
    versions.place(held(3), warm(), at(1), &AT_ONCE, false);
    versions.drained();
    versions.go_back(held(1), warm());
    assert!(!versions.wants(2) && !versions.wants(3) && versions.wants(4));
    // After a restart what was in use is used again, and what is in between still is not.
    let mut versions = Versions::new(None, [3].into());
    assert!(versions.wants(1) && versions.wants(2) && !versions.wants(3), "any is better than none");
    versions.place(held(1), warm(), at(0), &AT_ONCE, false);
    assert!(!versions.wants(2) && versions.wants(4));
}

#[test]
fn another_task_of_the_name_begins_with_whatever_number() {
    let mut versions = Versions::new(None, [6].into());
    versions.place(held(4), warm(), at(0), &TRIED, false);
    versions.place(held(5), warm(), at(1), &TRIED, false);
    versions.begin_anew();
    assert_eq!((versions.answering(), versions.previous(), versions.in_memory()), (vec![4], None, 2));
    assert!(versions.wants(1) && versions.refused().is_empty());
    assert_eq!(versions.roll_back(&[1, 2, 3]), Err(NoWayBack::None), "those are of another task");
    versions.drained();
    let placed = versions.place(held(1), warm(), at(2), &TRIED, false);
    assert_eq!(placed, Placed::Stable { before: Some(4) }, "what answered until now is nothing to try it beside");
    assert_eq!((versions.answering(), versions.previous()), (vec![1], None));
    assert!(!versions.wants(1) && versions.wants(2));
}

proptest! {
    #[test]
    fn whatever_happens_two_versions_are_in_memory_at_most_and_one_always_answers(
        steps in proptest::collection::vec((0_u8..6, 0_u64..40), 1..200)
    ) {
        let (mut versions, mut newest, mut now) = (Versions::new(None, BTreeSet::new()), 1, 0);
        versions.place(held(1), warm(), at(0), &TRIED, false);
        for (step, seconds) in steps {
            now += seconds;
            match step {
                0 | 1 => {
                    newest += 1;
                    if step == 1 {
                        versions.overtake();
                    }
                    if versions.wants(newest) && versions.has_room() {
                        versions.place(held(newest), warm(), at(now), if step == 0 { &TRIED } else { &AT_ONCE }, false);
                    }
                }
                2 => drop(versions.drained()),
                3 => drop(versions.judge(at(now), &TRIED)),
                4 => {
                    if let Some(watch) = versions.watch(newest) {
                        watch.compare(&[0; 20], &[1; 20]);
                    }
                }
                _ => if versions.draining().is_none()
                    && let Ok(WayBack::To(ways)) = versions.roll_back(&[])
                    && versions.has_room()
                {
                    versions.go_back(held(ways[0]), warm());
                },
            }
            prop_assert!(versions.in_memory() <= 2);
            let route = versions.route(now, &TRIED).map(|held| held.version);
            prop_assert!(route.is_some_and(|version| versions.answering().contains(&version)));
            let stable = versions.stable().map(|held| held.version);
            prop_assert!(stable.is_some_and(|version| !versions.refused().contains(&version) ), "{stable:?}");
        }
    }
}

//! Sides of keys, and verdicts on canaries.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn trying(percent: f64) -> Rollout {
    Rollout { canary_percent: percent, hold: Duration::from_secs(60), abort: Abort::default() }
}

#[test]
fn a_fifth_of_the_keys_meets_the_canary_and_always_the_same_ones() {
    let rollout = trying(20.0);
    let sides = || {
        let side = |key: u32| rollout.side(draw_of("digits", format!("patient-{key}").as_bytes()));
        (0..100_000).map(side).collect::<Vec<_>>()
    };
    let first = sides();
    let canaries = first.iter().filter(|side| **side == Side::Canary).count();
    assert!((19_000..=21_000).contains(&canaries), "{canaries}");
    assert_eq!(first, sides(), "a key stays on its side");
    let of_another = (0..1000).filter(|key: &u32| {
        let key = format!("patient-{key}");
        rollout.side(draw_of("digits", key.as_bytes())) != rollout.side(draw_of("text", key.as_bytes()))
    });
    assert!(of_another.count() > 100, "each model has canaries of its own");
}

#[test]
fn more_percent_keeps_those_who_were_in() {
    let keys = (0..10_000).map(|key: u32| draw_of("m", &key.to_be_bytes()));
    for draw in keys {
        let sides = [0.0, 5.0, 20.0, 100.0].map(|percent| trying(percent).side(draw));
        assert_eq!((sides[0], sides[3]), (Side::Stable, Side::Canary));
        assert!(sides.windows(2).all(|pair| pair[0] == Side::Stable || pair[1] == Side::Canary));
    }
}

#[test]
fn a_good_canary_is_promoted_when_its_time_is_over() {
    let (rollout, mut watch) = (trying(20.0), Watch::new(MS * 500));
    (0..1000).for_each(|_| watch.note(MS, false));
    watch.compare(&[1; 1000], &[1; 1000]);
    let end = MS * 60_500;
    assert_eq!(watch.verdict(MS * 501, &rollout), Verdict::Hold(end));
    assert_eq!(watch.verdict(end - MS, &rollout), Verdict::Hold(end));
    assert_eq!(watch.verdict(end, &rollout), Verdict::Promote);
    assert_eq!(Watch::new(MS).verdict(end, &rollout), Verdict::Promote, "nothing speaks against it");
}

#[test]
fn each_fault_takes_it_back_before_its_time_is_over() {
    let rollout = trying(20.0);
    let mut failing = Watch::new(MS);
    (0..100).for_each(|request| failing.note(MS, request % 50 == 0));
    assert_eq!(failing.verdict(MS * 2, &rollout), Verdict::TakeBack(Reason::Errors { errors: 2, requests: 100 }));
    let mut slow = Watch::new(MS);
    (0..100).for_each(|request| slow.note(if request < 5 { MS * 900 } else { MS }, false));
    let reason = Reason::Slow { p99: MS * 900, limit: Abort::default().p99 };
    assert_eq!(slow.verdict(MS * 2, &rollout), Verdict::TakeBack(reason));
    let mut other = Watch::new(MS);
    other.compare(&[1; 100], &[[1; 79].as_slice(), [2; 21].as_slice()].concat());
    let reason = Reason::Disagrees { disagreed: 21, compared: 100 };
    assert_eq!(other.verdict(MS * 2, &rollout), Verdict::TakeBack(reason));
    assert_eq!(reason.to_string(), "21 of 100 predictions are not the stable version's");
    let mut few = Watch::new(MS);
    (0..49).for_each(|_| few.note(MS * 900, true));
    assert_eq!(few.verdict(MS * 2, &rollout), Verdict::Hold(MS * 60_001), "49 requests prove nothing");
}

proptest! {
    #[test]
    fn a_canary_within_every_limit_is_never_taken_back(
        requests in proptest::collection::vec(0_u64..250, 0..300), classes in proptest::collection::vec(0_u32..10, 0..300)
    ) {
        let (rollout, mut watch) = (trying(50.0), Watch::new(MS));
        requests.iter().for_each(|&ms| watch.note(MS * u32::try_from(ms).unwrap(), false));
        watch.compare(&classes, &classes);
        prop_assert!(!matches!(watch.verdict(MS * 2, &rollout), Verdict::TakeBack(_)));
    }
}

#[test]
fn a_version_may_be_tried_without_end() {
    let rollout = Rollout { hold: Duration::MAX, ..trying(20.0) };
    assert_eq!(Watch::new(MS).verdict(2 * MS, &rollout), Verdict::Hold(Duration::MAX));
}

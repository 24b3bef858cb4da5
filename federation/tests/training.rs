//! Opening times of rounds of updates trained ahead.

use std::time::Duration;

use federation::time::Timestamp;
use federation::training::{Opening, opening};
use proptest::prelude::*;
use task_spec::{Ahead, Staleness};

fn ahead(period_ms: Option<u64>) -> Ahead {
    Ahead {
        period: period_ms.map(Duration::from_millis),
        concurrency: 20,
        staleness: Staleness { a: 1.0, p: 0.5, max: 10 },
        training_deadline: Duration::from_secs(600),
    }
}

#[test]
fn a_buffer_opens_when_it_is_full_and_a_period_when_it_is_over() {
    let at = |ms: i64| Timestamp(1_000_000 + ms);
    let buffered = ahead(None);
    assert_eq!(opening(&buffered, 9, 10, at(0), at(1)), Opening::WhenReady);
    assert_eq!(opening(&buffered, 10, 10, at(0), at(0)), Opening::Now);
    assert_eq!(opening(&buffered, 0, 0, at(0), at(0)), Opening::WhenReady, "a round needs somebody");
    let semi = ahead(Some(5_000));
    for (ready, now, expected) in [
        (50, 4_999, Opening::At(at(5_000))),
        (0, 0, Opening::At(at(5_000))),
        (50, 5_000, Opening::Now),
        (9, 5_000, Opening::WhenReady),
        (10, 90_000, Opening::Now),
        (10, -1, Opening::Now),
        (9, -1, Opening::WhenReady),
    ] {
        assert_eq!(opening(&semi, ready, 10, at(0), at(now)), expected, "{ready} at {now}");
    }
}

proptest! {
    /// At any time, a round opens exactly when enough updates are ready and the period has passed.
    #[test]
    fn nothing_opens_early_and_nothing_waits_for_ever(ready in 0..40_u32, min in 0..40_u32, now in -20_000..20_000_i64) {
        let semi = ahead(Some(5_000));
        let runs = (0..5_000).contains(&now);
        let expected = match (runs, ready >= min.max(1)) {
            (true, _) => Opening::At(Timestamp(5_000)),
            (false, true) => Opening::Now,
            (false, false) => Opening::WhenReady,
        };
        prop_assert_eq!(opening(&semi, ready, min, Timestamp(0), Timestamp(now)), expected);
    }
}

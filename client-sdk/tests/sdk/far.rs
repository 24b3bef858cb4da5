//! Participants behind a slow connection, two seconds each way, or one with an outage, in virtual time. A round then takes its round
//! trips, and after an outage the wait until all participants retry.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_sdk::clock::{Clock, Now};
use client_sdk::journal::MemoryJournal;
use client_sdk::{Event, Participant, SecurityPolicy};

use crate::support::cohort::{Hub, TODAY};
use crate::support::device::check_sums;
use crate::support::link::{Link, LongLine};
use crate::support::trainers::Exact;

const ONE_WAY: Duration = Duration::from_secs(2);
const DEVICES: usize = 5;

/// Follows the runtime's clock, which a test may stop.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn now(&self) -> Now {
        Now { elapsed: self.0.elapsed(), wall: TODAY }
    }
}

/// How long `rounds` rounds take, enrolment included, on lines that are cut during them.
async fn time_of(rounds: u32, one_way: Duration, cut: Range<Duration>) -> Duration {
    let (hub, told) = (Hub::new(DEVICES, rounds), Arc::new(Mutex::new(BTreeSet::new())));
    let start = tokio::time::Instant::now();
    let participants = (0..DEVICES).map(|device| {
        let line = LongLine { one_way, cut: start + cut.start..start + cut.end, told: Arc::clone(&told) };
        let mut participant = Participant::builder()
            .transport(Link { coordinator: hub.line(device), long: Some(line) })
            .enrollment_token("token")
            .journal(MemoryJournal::new())
            .trainer(Exact::new(device))
            .members_ca_pem(crate::support::ca_pem())
            .secure_aggregation(SecurityPolicy::lowest())
            .clock(Virtual(start))
            .on_event(|event| assert!(!matches!(event, Event::Refused { .. }), "{event:?}"))
            .build()
            .unwrap();
        async move { participant.run(std::future::pending()).await.unwrap() }
    });
    futures_util::future::join_all(participants).await;
    check_sums(&hub, "far away");
    assert_eq!(hub.world(|world| world.published.len()), rounds as usize);
    let expected: BTreeSet<_> = wire::round_trip::reported(2 * one_way).into_iter().collect();
    assert_eq!(*told.lock().unwrap(), expected, "the coordinator knows their lines, where they are long");
    start.elapsed()
}

/// Round trips that `rounds` rounds take, enrolment included.
async fn round_trips(rounds: u32) -> f64 {
    time_of(rounds, ONE_WAY, Duration::ZERO..Duration::ZERO).await.as_secs_f64() / (2 * ONE_WAY).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_secure_round_takes_six_round_trips() {
    let (one, four) = (round_trips(1).await, round_trips(4).await);
    let each = (four - one) / 3.0;
    println!("{each:.3} round trips a secure round, {one:.3} with enrolment and the news that the task is over");
    assert!(each < 6.01, "{each}");
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_without_a_coordinator_everybody_is_back_within_fifteen_seconds() {
    let one_way = Duration::from_millis(20);
    let undisturbed = time_of(4, one_way, Duration::ZERO..Duration::ZERO).await;
    let (from, outage) = (undisturbed / 2, Duration::from_secs(600));
    let after = time_of(4, one_way, from..from + outage).await.saturating_sub(from + outage);
    println!(
        "done {:.1} s after the line was back; four rounds take {:.1} s",
        after.as_secs_f64(),
        undisturbed.as_secs_f64()
    );
    assert!(after < Duration::from_secs(15) + undisturbed, "{after:?}");
}

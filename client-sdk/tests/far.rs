//! Participants at the end of a long line, two seconds each way, or of one that is cut for a while, in virtual time. What a round
//! takes then is round trips, and after an outage the wait until everybody asks again.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::clock::{Clock, Now};
use client_sdk::identity::Identity;
use client_sdk::journal::MemoryJournal;
use client_sdk::transport::{Abandonment, Transport, TransportError, Upload};
use client_sdk::{Event, Participant, SecurityPolicy};
use support::cohort::{Hub, Line, TODAY};
use support::device::{Exact, check_sums};
use wire::participant::{
    Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt, RenewRequest,
};
use wire::{Attempt, ParticipantId, TaskId};

const ONE_WAY: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const DEVICES: usize = 5;

/// Everything takes its time in both directions; what waits for the round waits at the far end.
struct Far {
    line: Line,
    one_way: Duration,
    /// Nothing gets through meanwhile.
    cut: Range<tokio::time::Instant>,
    /// What participants say of their lines.
    told: Arc<Mutex<BTreeSet<u32>>>,
}

impl Far {
    async fn exchange<T: Send>(
        &self,
        effect: impl Future<Output = Result<T, TransportError>> + Send,
    ) -> Result<T, TransportError> {
        tokio::time::sleep(self.one_way).await;
        self.gets_through()?;
        let answer = effect.await;
        tokio::time::sleep(self.one_way).await;
        self.gets_through()?;
        answer
    }

    fn gets_through(&self) -> Result<(), TransportError> {
        match self.cut.contains(&tokio::time::Instant::now()) {
            true => Err(TransportError::unreachable("the line is cut")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Transport for Far {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.line.identify(identity)
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.exchange(self.line.enroll(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.exchange(self.line.renew(request)).await
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        self.told.lock().unwrap().extend(request.round_trip_ms);
        self.exchange(async {
            let end = tokio::time::Instant::now() + Duration::from_millis(request.wait_ms);
            loop {
                let reply = self.line.check_in(request).await;
                if !matches!(reply, Ok(CheckInReply::ComeBack { .. })) || tokio::time::Instant::now() >= end {
                    return reply;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
        .await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        self.exchange(self.line.fetch_model(task, model, sink)).await
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        self.exchange(self.line.upload(upload)).await
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        self.exchange(async {
            let end = tokio::time::Instant::now() + wait;
            loop {
                let said = self.line.announcement(what, place, participant, Duration::ZERO).await;
                if !matches!(said, Ok(None)) || tokio::time::Instant::now() >= end {
                    return said;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
        .await
    }

    async fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        self.exchange(self.line.evidence(place, dealer)).await
    }

    async fn answer(
        &self,
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        self.exchange(self.line.answer(what, place, participant, body)).await
    }

    async fn abort_statement(
        &self,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        self.exchange(self.line.abort_statement(place, participant, body)).await
    }

    async fn abort_statements(&self, place: Attempt) -> Result<Option<Bytes>, TransportError> {
        self.exchange(self.line.abort_statements(place)).await
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        self.exchange(self.line.abandon(abandonment)).await
    }
}

/// Follows the runtime's clock, which a test may stop.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn now(&self) -> Now {
        Now { elapsed: self.0.elapsed(), wall: TODAY }
    }
}

/// How long `rounds` rounds take, enrolment included, on lines that are cut meanwhile.
async fn time_of(rounds: u32, one_way: Duration, cut: Range<Duration>) -> Duration {
    let (hub, told) = (Hub::new(DEVICES, rounds), Arc::new(Mutex::new(BTreeSet::new())));
    let start = tokio::time::Instant::now();
    let participants = (0..DEVICES).map(|device| {
        let mut participant = Participant::builder()
            .transport(Far {
                line: hub.line(device),
                one_way,
                cut: start + cut.start..start + cut.end,
                told: Arc::clone(&told),
            })
            .enrollment_token("token")
            .journal(MemoryJournal::new())
            .trainer(Exact::new(device))
            .members_ca_pem(support::ca_pem())
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
    let expected: BTreeSet<_> = wire::line::told(2 * one_way).into_iter().collect();
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

//! Participants at the end of a long line: two seconds each way, in virtual time. What a round takes then is round trips.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::clock::{Clock, Now};
use client_sdk::identity::Identity;
use client_sdk::journal::MemoryJournal;
use client_sdk::transport::{Abandonment, Place, Transport, TransportError, Upload};
use client_sdk::{Event, Participant, SecurityPolicy};
use support::cohort::{Hub, Line, TODAY};
use support::device::{Exact, check_sums};
use wire::participant::{
    Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt, RenewRequest,
};
use wire::{ParticipantId, TaskId};

const ONE_WAY: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const DEVICES: usize = 5;

/// Everything takes its time in both directions; what waits for the round waits at the far end.
struct Far(Line);

impl Far {
    async fn exchange<T: Send>(&self, effect: impl Future<Output = T> + Send) -> T {
        tokio::time::sleep(ONE_WAY).await;
        let answer = effect.await;
        tokio::time::sleep(ONE_WAY).await;
        answer
    }
}

#[async_trait]
impl Transport for Far {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.0.identify(identity)
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.exchange(self.0.enroll(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.exchange(self.0.renew(request)).await
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        self.exchange(async {
            let end = tokio::time::Instant::now() + Duration::from_millis(request.wait_ms);
            loop {
                let reply = self.0.check_in(request).await;
                if !matches!(reply, Ok(CheckInReply::ComeBack { .. })) || tokio::time::Instant::now() >= end {
                    return reply;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
        .await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        self.exchange(self.0.fetch_model(task, model, sink)).await
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        self.exchange(self.0.upload(upload)).await
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Place,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        self.exchange(async {
            let end = tokio::time::Instant::now() + wait;
            loop {
                let said = self.0.announcement(what, place, participant, Duration::ZERO).await;
                if !matches!(said, Ok(None)) || tokio::time::Instant::now() >= end {
                    return said;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        })
        .await
    }

    async fn evidence(&self, place: Place, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        self.exchange(self.0.evidence(place, dealer)).await
    }

    async fn answer(
        &self,
        what: Answer,
        place: Place,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        self.exchange(self.0.answer(what, place, participant, body)).await
    }

    async fn abort_statement(
        &self,
        place: Place,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        self.exchange(self.0.abort_statement(place, participant, body)).await
    }

    async fn abort_statements(&self, place: Place) -> Result<Option<Bytes>, TransportError> {
        self.exchange(self.0.abort_statements(place)).await
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        self.exchange(self.0.abandon(abandonment)).await
    }
}

/// Follows the runtime's clock, which a test may stop.
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn now(&self) -> Now {
        Now { elapsed: self.0.elapsed(), wall: TODAY }
    }
}

/// Round trips that `rounds` rounds take, enrolment included.
async fn round_trips(rounds: u32, faults: impl FnOnce(&Hub)) -> f64 {
    let hub = Hub::new(DEVICES, rounds);
    faults(&hub);
    let start = tokio::time::Instant::now();
    let participants = (0..DEVICES).map(|device| {
        let mut participant = Participant::builder()
            .transport(Far(hub.line(device)))
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
    start.elapsed().as_secs_f64() / (2 * ONE_WAY).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_secure_round_takes_six_round_trips() {
    let (one, four) = (round_trips(1, |_| ()).await, round_trips(4, |_| ()).await);
    let each = (four - one) / 3.0;
    println!("{each:.3} round trips a secure round, {one:.3} with enrolment and the news that the task is over");
    assert!(each < 6.01, "{each}");
}

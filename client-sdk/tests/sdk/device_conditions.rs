//! The policy on the device's state: unmet conditions, data use, and their persistence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use client_sdk::clock::{Clock, Now, SystemClock};
use client_sdk::identity::Identity;
use client_sdk::journal::MemoryJournal;
use client_sdk::runner::{Next, Runner};
use client_sdk::transport::{Download, Request, Response, Traffic, Transport, TransportError};
use client_sdk::{Builder, DeviceConditions, DeviceState, Event, Outcome, Progress, Thermal, Unmet};
use wire::participant::ModelRef;
use wire::{TaskId, Timestamp};

use crate::support::link::Link;
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, task};

const GOOD: DeviceState = DeviceState {
    charging: Some(true),
    unmetered: Some(true),
    idle: Some(true),
    battery_percent: Some(90),
    thermal: Some(Thermal::Nominal),
};

fn builder(coordinator: &Coordinator) -> Builder {
    coordinator.app().enrollment_token("token").journal(MemoryJournal::new()).trainer(Nudge::default())
}

#[tokio::test(start_paused = true)]
async fn each_condition_that_holds_it_up_is_told_and_nothing_is_sent() {
    let coordinator = Coordinator::new(1);
    let state = Arc::new(Mutex::new(DeviceState::default()));
    let events = Arc::new(Mutex::new(Vec::new()));
    let (reported, told) = (Arc::clone(&state), Arc::clone(&events));
    let mut participant = builder(&coordinator)
        .device_conditions(DeviceConditions::default(), move || *reported.lock().unwrap())
        .on_event(move |event| {
            if let Event::HeldUp { unmet } = event {
                told.lock().unwrap().push(*unmet);
            }
        })
        .build()
        .unwrap();
    let hot = DeviceState { thermal: Some(Thermal::Critical), ..GOOD };
    let too_hot = Unmet::Thermal { state: Some(Thermal::Critical), most: Thermal::Fair };
    for (now, unmet) in [
        (DeviceState::default(), Unmet::Charging),
        (hot, too_hot),
        (DeviceState { idle: Some(false), ..GOOD }, Unmet::Idle),
        (DeviceState { unmetered: Some(false), ..GOOD }, Unmet::Unmetered),
    ] {
        *state.lock().unwrap() = now;
        for _ in 0..3 {
            let progress = participant.poll(Duration::from_secs(60)).await;
            assert!(matches!(progress, Progress::Waiting(_) | Progress::Working), "{progress:?}");
        }
        assert_eq!(participant.held_up(), Some(unmet));
    }
    assert!(coordinator.world(|world| world.calls.is_empty()));
    let once = [Unmet::Charging, too_hot, Unmet::Idle, Unmet::Unmetered];
    assert_eq!(*events.lock().unwrap(), once, "each once");
    *state.lock().unwrap() = GOOD;
    let outcome = participant.run(std::future::pending()).await.unwrap();
    assert_eq!((outcome, participant.held_up()), (Outcome::TaskOver { task: task() }, None));
}

/// A network that counts: a thousand bytes a request, either way.
struct Counting(Link<Coordinator>, AtomicU64);

#[async_trait]
impl Transport for Counting {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.0.identify(identity)
    }

    fn traffic(&self) -> Traffic {
        let requests = self.1.load(Ordering::Relaxed);
        Traffic { sent: 400 * requests, received: 600 * requests }
    }

    async fn send(&self, request: &Request) -> Response {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.send(request).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.fetch_model(task, model, sink).await
    }
}

/// A calendar that begins at midnight.
#[derive(Clone)]
struct Calendar(Arc<SystemClock>);

impl Clock for Calendar {
    fn now(&self) -> Now {
        let now = self.0.now();
        Now { wall: Timestamp(86_400_000 * 20_000).plus(now.elapsed), ..now }
    }
}

#[tokio::test(start_paused = true)]
async fn a_days_data_is_used_up_also_by_the_next_process_and_comes_back_at_midnight() {
    let coordinator = Coordinator::new(4);
    let (journal, clock) = (Arc::new(MemoryJournal::new()), Calendar(Arc::new(SystemClock::new())));
    let policy = DeviceConditions { max_bytes_per_day: Some(8000), ..DeviceConditions::default() };
    let process = || {
        builder(&coordinator)
            .journal(Arc::clone(&journal))
            .transport(Counting(Link::to(coordinator.clone()), AtomicU64::new(0)))
            .device_conditions(policy, || GOOD)
            .clock(clock.clone())
            .build()
            .unwrap()
    };
    let mut first = process();
    while !matches!(first.held_up(), Some(Unmet::DataCap { .. })) {
        let progress = first.poll(Duration::from_secs(10)).await;
        assert!(!matches!(progress, Progress::Finished(_)), "{progress:?}");
    }
    let used = first.data_use();
    // To give up a round is a request more.
    assert!((8000..=9000).contains(&used.today.bytes()) && used.today.sent * 5 == used.today.bytes() * 2, "{used:?}");
    drop(first);
    let calls = coordinator.world(|world| world.calls.len());
    let mut second = process();
    // What was forgotten is less than a sixteenth of the cap and the last request.
    assert!(second.data_use().today.bytes() >= 6500, "{:?}", second.data_use());
    let _ = second.poll(Duration::from_secs(3600)).await;
    let more = coordinator.world(|world| world.calls.len()) - calls;
    assert!(more <= 2, "{more} requests after the cap");
    assert!(matches!(second.held_up(), Some(Unmet::DataCap { most: 8000, .. })));
    assert!(matches!(second.run(std::future::pending()).await, Ok(Outcome::TaskOver { .. })));
    assert!(clock.now().elapsed >= Duration::from_secs(24 * 3600), "it went on the next day");
    assert!(second.data_use().total.bytes() > second.data_use().today.bytes());
}

#[test]
fn a_runner_goes_by_what_it_is_told() {
    let coordinator = Coordinator::new(1);
    let builder = coordinator.app().enrollment_token("token").journal(MemoryJournal::new());
    let runner = Runner::start(builder.device_conditions(DeviceConditions::default(), DeviceState::default)).unwrap();
    assert!(matches!(runner.next(Duration::from_millis(50)), Next::Waiting));
    assert_eq!(runner.ask(client_sdk::Participant::held_up), Some(Some(Unmet::Charging)));
    assert!(coordinator.world(|world| world.calls.is_empty()));
    runner.set_device(GOOD);
    assert!(matches!(runner.next(Duration::from_secs(60)), Next::Job(_)));
    assert_eq!(runner.ask(client_sdk::Participant::held_up), Some(None));
}

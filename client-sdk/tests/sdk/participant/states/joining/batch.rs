//! The participant's side of draws for fixed batches, with a coordinator that repeats, rejects and discards them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use client_sdk::journal::{Journal as _, MemoryJournal};
use client_sdk::participant::machine::Settings;
use client_sdk::participant::snapshot;
use client_sdk::transport::{Download, Request, Response, TransportError};
use client_sdk::{Digest, Event, Outcome, RefusalCode, TaskId};
use secure_agg::batch::draw::{Drawn, MAX_UNFINISHED_DRAWS, Offer, Pool, Reveal, admit_reveal};
use secure_agg::codec::Message as _;
use uuid::Uuid;
use wire::Attempt;
use wire::base64::Base64;
use wire::participant::{BatchReport, BatchStep, CheckInReply, CheckInRequest, Invitation, ModelRef, TaskRefusal};
use wire::problem::ProblemType;

use crate::support::cohort::{Hub, id};
use crate::support::device::{Device, EFFECTS};
use crate::support::line::Line;
use crate::support::link::{FakeCoordinator, problem};
use crate::support::trainers::Exact;
use crate::support::{settings, task};

const DEVICES: usize = 6;
const SIZE: u16 = 3;

type Reply = Result<CheckInReply, TransportError>;

/// The coordinator's draws of batches of three among six devices.
#[derive(Default)]
struct Draws {
    /// Number of the current draw.
    number: u8,
    offers: BTreeMap<usize, Vec<u8>>,
    pool: Option<Pool>,
    reveals: BTreeMap<usize, Reveal>,
    /// Number of draws to discard after all have revealed.
    discards: u32,
    /// Number of offers to reject, and those that were rejected.
    rejections: usize,
    rejected: Vec<Vec<u8>>,
    /// Draws for which a device has sent its nonce.
    revealed: BTreeMap<usize, BTreeSet<u8>>,
    /// The batch that each device reports.
    members: BTreeMap<usize, (u16, Digest)>,
    refusals: Vec<(usize, TaskRefusal)>,
    /// An invitation for devices without a reported refusal, in place of a draw.
    invitation: Option<Invitation>,
    /// Whether devices make keys for a round before they are drawn into batches.
    keys_first: bool,
}

impl Draws {
    /// The answer to a check-in; `None` if the round's coordinator gives it.
    fn check_in(&mut self, device: usize, request: &CheckInRequest) -> Option<Reply> {
        self.refusals.extend(request.refusals.iter().map(|refusal| (device, *refusal)));
        if self.keys_first && request.keys.is_none() {
            return None;
        }
        if !request.refusals.is_empty() {
            return Some(later());
        }
        if let Some(invitation) = &self.invitation {
            return Some(Ok(CheckInReply::Invited(Box::new(invitation.clone()))));
        }
        let current = self.id();
        Some(match &request.batch {
            Some(BatchReport::Member { size, batch }) => {
                self.members.insert(device, (*size, *batch));
                return (!self.keys_first).then(later);
            }
            Some(BatchReport::Offer { draw, offer }) if *draw == current => self.offered(device, &offer.0),
            Some(BatchReport::Reveal { draw, reveal }) if *draw == current => self.revealed(device, &reveal.0),
            Some(BatchReport::Offer { .. } | BatchReport::Reveal { .. }) | None => self.invite(),
        })
    }

    fn id(&self) -> Uuid {
        Uuid::from_bytes([self.number + 1; 16])
    }

    fn invite(&self) -> Reply {
        step(BatchStep::Offer { task: task(), draw: self.id(), size: SIZE })
    }

    fn begin_another(&mut self) {
        self.number += 1;
        (self.pool, self.offers, self.reveals) = (None, BTreeMap::new(), BTreeMap::new());
    }

    fn offered(&mut self, device: usize, offer: &[u8]) -> Reply {
        if self.rejected.len() < self.rejections {
            self.rejected.push(offer.to_vec());
            return problem(ProblemType::SessionRejected);
        }
        let before = self.offers.entry(device).or_insert_with(|| offer.to_vec());
        assert_eq!(before, offer, "device {device} made two offers for one draw");
        if self.pool.is_none() && self.offers.len() == DEVICES {
            let offers = self.offers.values().map(|offer| Offer::decode(offer).unwrap());
            self.pool = Some(Pool::fix(*self.id().as_bytes(), SIZE, offers.collect()));
        }
        match &self.pool {
            Some(pool) => step(BatchStep::Reveal { task: task(), draw: self.id(), pool: Base64(pool.encode()) }),
            None => later(),
        }
    }

    fn revealed(&mut self, device: usize, reveal: &[u8]) -> Reply {
        let reveal = Reveal::decode(reveal).unwrap();
        admit_reveal(self.pool.as_ref().unwrap(), id(device).0.as_bytes(), &reveal).unwrap();
        self.revealed.entry(device).or_default().insert(self.number);
        self.reveals.insert(device, reveal);
        if self.reveals.len() < DEVICES {
            return later();
        }
        if self.discards > 0 {
            self.discards -= 1;
            self.begin_another();
            return self.invite();
        }
        // Devices and the pool are both in the order of ids.
        let nonces: Vec<_> = self.reveals.values().map(|reveal| reveal.nonce).collect();
        let drawn = Drawn { draw: *self.id().as_bytes(), nonces: nonces.into() };
        step(BatchStep::Drawn { draw: self.id(), drawn: Base64(drawn.encode()) })
    }
}

fn later() -> Reply {
    Ok(CheckInReply::ComeBack { after_ms: 500, waiting_for: vec![] })
}

fn step(step: BatchStep) -> Reply {
    Ok(CheckInReply::Batch(Box::new(step)))
}

/// A device's connection: check-ins go to the draws first.
#[derive(Clone)]
struct Connection {
    device: usize,
    line: Line,
    draws: Arc<Mutex<Draws>>,
}

impl FakeCoordinator for Connection {
    fn answer(&self, request: Request) -> Response {
        if let Request::CheckIn(check_in) = &request
            && let Some(reply) = self.draws.lock().unwrap().check_in(self.device, check_in)
        {
            return Response::CheckedIn(reply);
        }
        self.line.answer(request)
    }

    fn fetch(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        self.line.fetch(task, model, sink)
    }

    fn observe(&self, place: Attempt, what: &'static str, bytes: Vec<u8>) {
        self.line.observe(place, what, bytes);
    }
}

struct World {
    hub: Hub,
    draws: Arc<Mutex<Draws>>,
    devices: Vec<Device<Connection>>,
}

impl World {
    fn new(draws: Draws, settings: &Settings) -> Self {
        let (hub, draws) = (Hub::new(DEVICES, 1), Arc::new(Mutex::new(draws)));
        let device = |device| {
            let connection = Connection { device, line: hub.line(device), draws: Arc::clone(&draws) };
            Device::with(Arc::new(MemoryJournal::new()), device, connection, Exact::new(device), settings.clone())
        };
        let devices = (0..DEVICES).map(device).collect();
        Self { hub, draws, devices }
    }

    fn draws<T>(&self, look: impl FnOnce(&mut Draws) -> T) -> T {
        look(&mut self.draws.lock().unwrap())
    }

    /// All devices in turn, one action each, until the draws are so far.
    fn run_until(&mut self, is_done: impl Fn(&Draws) -> bool) {
        for _ in 0..5_000 {
            if self.draws(|draws| is_done(draws)) {
                return;
            }
            for device in &mut self.devices {
                device.step(None);
                assert!(device.ended.is_none(), "device {}: {:?}", device.index, device.ended);
            }
        }
        panic!("it does not come so far");
    }

    fn run_to_batches(&mut self) {
        self.run_until(|draws| draws.members.len() == DEVICES);
        self.check_batches();
    }

    /// Each device is in one of two batches of three.
    fn check_batches(&self) {
        let members = self.draws(|draws| draws.members.clone());
        let batches: BTreeSet<_> = members.values().copied().collect();
        assert_eq!(batches.len(), 2);
        for batch in batches {
            assert_eq!(batch.0, SIZE);
            assert_eq!(members.values().filter(|one| **one == batch).count(), usize::from(SIZE));
        }
    }
}

/// Draws in a row that the device's journal counts without a result.
fn unfinished(device: &Device<Connection>) -> usize {
    let Some(record) = device.journal.load(snapshot::BATCH).unwrap() else { return 0 };
    let text = String::from_utf8_lossy(&record);
    let (_, rest) = text.split_once("\"unfinished\":").unwrap();
    let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

fn reasons(device: &Device<Connection>) -> Vec<String> {
    let refused = device.events.iter().filter_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    refused.collect()
}

#[test]
fn draw_continues_after_a_restart_at_any_action() {
    let mut longest = 0;
    for kill in EFFECTS {
        for at in 0.. {
            let mut world = World::new(Draws::default(), &settings());
            let mut was_killed = false;
            for _ in 0..5_000 {
                if world.draws(|draws| draws.members.len() == DEVICES) {
                    break;
                }
                for device in &mut world.devices {
                    let dies = device.index == 0 && device.actions == at;
                    was_killed |= dies;
                    device.step(dies.then_some(kill));
                }
            }
            world.check_batches();
            assert_eq!(unfinished(&world.devices[0]), 0);
            let is_drawn = |event: &Event| matches!(event, Event::InBatch { size: SIZE, .. });
            assert!(world.devices[0].events.iter().any(is_drawn), "{kill:?} at {at}");
            if !was_killed {
                longest = longest.max(at);
                break;
            }
        }
    }
    // Enrolment, and three steps with a record each.
    assert!(longest > 8, "{longest}");
}

#[test]
fn draws_are_counted_before_the_reveal_and_end() {
    let limit = usize::try_from(MAX_UNFINISHED_DRAWS).unwrap();
    let mut world = World::new(Draws { discards: u32::MAX, ..Draws::default() }, &settings());
    let mut before = 0;
    for _ in 0..5_000 {
        for at in 0..DEVICES {
            world.devices[at].step(None);
            let sent = world.draws(|draws| draws.revealed.get(&at).map_or(0, BTreeSet::len));
            let counted = unfinished(&world.devices[at]);
            assert!((sent..=sent + 1).contains(&counted), "device {at} sent {sent} nonces and counted {counted}");
        }
        // The count survives a restart in each draw.
        let number = world.draws(|draws| usize::from(draws.number));
        if number > before {
            before = number;
            world.devices[0].restart();
        }
        if world.draws(|draws| (0..DEVICES).all(|at| draws.refusals.iter().any(|(device, _)| *device == at))) {
            break;
        }
    }
    world.draws(|draws| {
        assert!(draws.revealed.values().all(|revealed| revealed.len() == limit), "{:?}", draws.revealed);
        assert_eq!(draws.revealed.len(), DEVICES);
        assert!(draws.offers.is_empty(), "no offer for the next draw");
        let refused = TaskRefusal { task: task(), reason: RefusalCode::Protocol };
        assert!(draws.refusals.iter().all(|(_, refusal)| *refusal == refused));
        draws.refusals.clear();
    });
    world.devices[0].restart();
    world.run_until(|draws| draws.refusals.iter().any(|(device, _)| *device == 0));
    world.draws(|draws| assert!(draws.offers.is_empty()));
}

#[test]
fn finished_draw_resets_the_count() {
    let mut world = World::new(Draws { discards: 3, ..Draws::default() }, &settings());
    world.run_to_batches();
    assert!(world.draws(|draws| draws.revealed.values().all(|revealed| revealed.len() == 4)));
    assert!(world.devices.iter().all(|device| unfinished(device) == 0));
}

#[test]
fn rejected_offer_is_dropped() {
    let mut world = World::new(Draws { rejections: 1, ..Draws::default() }, &settings());
    world.run_to_batches();
    world.draws(|draws| {
        let [rejected] = draws.rejected.as_slice() else { panic!("one") };
        assert!(draws.offers.values().all(|offer| offer != rejected), "the nonce of a rejected offer is not used");
    });
}

#[test]
fn batch_stays_until_the_app_consents_to_leave_it() {
    let mut world = World::new(Draws::default(), &settings());
    world.run_to_batches();
    let (_, batch) = world.draws(|draws| draws.members[&0]);
    world.draws(Draws::begin_another);
    for consent in [None, Some(Digest([7; 32]))] {
        world.draws(|draws| draws.members.clear());
        world.devices[0].settings.security.leave_batch = consent;
        world.devices[0].restart();
        world.run_until(|draws| draws.members.contains_key(&0));
        assert_eq!(world.draws(|draws| draws.members[&0]), (SIZE, batch));
    }
    world.devices[0].settings.security.leave_batch = Some(batch);
    world.devices[0].restart();
    world.run_until(|draws| draws.offers.contains_key(&0));
    // It has left for good, and continues with the draw that it is in.
    world.devices[0].settings.security.leave_batch = None;
    world.devices[0].restart();
    world.draws(|draws| draws.members.clear());
    world.run_until(|draws| draws.members.len() == DEVICES - 1);
    for _ in 0..20 {
        world.devices[0].step(None);
    }
    world.draws(|draws| assert!(!draws.members.contains_key(&0) && draws.offers.len() == 1));
}

#[test]
fn draws_of_small_batches_are_reported_as_refused() {
    let mut strict = settings();
    strict.security.min_batch = SIZE + 1;
    let mut world = World::new(Draws::default(), &strict);
    world.run_until(|draws| draws.refusals.len() >= DEVICES);
    world.draws(|draws| {
        assert!(draws.offers.is_empty());
        let refused = TaskRefusal { task: task(), reason: RefusalCode::Policy };
        assert!(draws.refusals.iter().all(|(_, refusal)| *refusal == refused));
    });
}

#[test]
fn rounds_of_larger_batches_are_reported_as_refused() {
    let mut world = World::new(Draws::default(), &settings());
    let mut terms = world.hub.world(|world| world.terms(0));
    terms.batch_size = SIZE;
    let invitation = Invitation { task: task(), round: 1, attempt: 1, terms };
    world.draws(|draws| draws.invitation = Some(invitation.clone()));
    world.run_until(|draws| draws.refusals.iter().any(|(device, _)| *device == 0));
    let refused = TaskRefusal { task: task(), reason: RefusalCode::Policy };
    assert!(world.draws(|draws| draws.refusals.iter().all(|(_, refusal)| *refusal == refused)));
    assert_eq!(
        reasons(&world.devices[0]),
        ["the task needs participants in batches of at least 3, and this one is in none"]
    );

    let mut world = World::new(Draws::default(), &settings());
    world.run_to_batches();
    let mut larger = invitation;
    larger.terms.batch_size = SIZE + 1;
    world.draws(|draws| draws.invitation = Some(larger));
    world.run_until(|draws| draws.refusals.iter().any(|(device, _)| *device == 0));
    let [reason]: [String; 1] = reasons(&world.devices[0]).try_into().unwrap();
    let (_, batch) = world.draws(|draws| draws.members[&0]);
    assert!(reason.starts_with(&format!("the task needs a batch of 4, and this participant is in batch {batch} of 3")));
}

#[test]
fn keys_older_than_the_batch_are_not_dealt_with() {
    let mut world = World::new(Draws { keys_first: true, ..Draws::default() }, &settings());
    for _ in 0..2_000 {
        for device in world.devices.iter_mut().filter(|device| device.ended.is_none()) {
            device.step(None);
        }
    }
    world.check_batches();
    let mut refused = world.hub.world(|world| world.refused.clone());
    refused.sort_by_key(|(device, _)| *device);
    assert_eq!(refused, (0..DEVICES).map(|device| (device, RefusalCode::Keys)).collect::<Vec<_>>());
    world.hub.world(|world| assert!(world.published.is_empty() && world.failed == [1]));
    assert!(world.devices.iter().all(|device| matches!(device.ended, Some(Ok(Outcome::TaskOver { .. })))));
}

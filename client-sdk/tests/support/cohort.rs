//! A coordinator that runs the real phases of secure aggregation.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "each test uses a part of this"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::identity::Identity;
use client_sdk::learning::privacy::{PlanRequest, PrivateCodec};
use client_sdk::learning::{Parameters, checkpoint};
use client_sdk::transport::{Abandonment, Place, Transport, TransportError, Upload};
use recipe::digest::{application_digest, round_digest, training_digest};
use secure_agg::codec::Message as _;
use secure_agg::mask::{self, Plane};
use secure_agg::messages::{Advertise, Complaint, Consistency, MaskedInput, Roster, Round, ShareKeys, Unmasking};
use secure_agg::params::{SessionConfig, VectorShape};
use secure_agg::server::{
    Admitted, CollectConsistency, CollectKeys, CollectMasked, CollectShares, CollectUnmasking, Enrolled,
};
use secure_agg::unopened::{AbortStatement, Ended, Unopened};
use secure_agg::{modular, packing, upload};
use task_spec::{Staleness, TrainingPlan};
use wire::certificate::{Authority, Issuers, Recorded};
use wire::participant::{
    Announcement, Answer, Assignment, CheckInReply, CheckInRequest, Encoding, EnrollReply, EnrollRequest, HeldUpdate,
    Invitation, ModelRef, PrivacyTerms, Receipt, RefusalCode, RenewRequest, SessionTerms,
};
use wire::problem::{Problem, ProblemType};
use wire::{Digest, ParticipantId, RoundState, TaskId, Timestamp};

use super::device::DEAD;
use super::private::derive;
use super::words::metrics;
pub use super::words::{codec, encoding};
use super::{CA, Ca, Coordinator, Fault, ca_pem, model, sha256, task};

/// Some day on which the certificates hold.
pub const TODAY: Timestamp = Timestamp(1_790_000_000_000);

pub fn id(device: usize) -> ParticipantId {
    format!("00000000-0000-0000-0000-0000000001{device:02}").parse().unwrap()
}

fn index(participant: ParticipantId) -> usize {
    (0..100).find(|device| id(*device) == participant).unwrap()
}

/// Where the round stands, with what came in.
pub enum Stage {
    Selecting(CollectKeys, BTreeMap<usize, Enrolled>),
    Sharing(CollectShares, Vec<ShareKeys>),
    Collecting(CollectMasked, Vec<MaskedInput>),
    Confirming(CollectConsistency, Vec<Consistency>),
    Unmasking(CollectUnmasking, Vec<Unmasking>),
    /// Between two stages.
    Nothing,
}

impl Stage {
    fn state(&self) -> RoundState {
        match self {
            Self::Selecting(..) | Self::Nothing => RoundState::Selecting,
            Self::Sharing(..) => RoundState::Sharing,
            Self::Collecting(..) => RoundState::Collecting,
            Self::Confirming(..) => RoundState::Confirming,
            Self::Unmasking(..) => RoundState::Unmasking,
        }
    }
}

/// A sum that was opened.
pub struct Published {
    pub round: u32,
    pub sum: Vec<u32>,
    pub survivors: Vec<usize>,
}

pub struct World {
    /// Certifies these devices instead of the authority that their apps name.
    pub accomplices: BTreeMap<usize, Arc<Ca>>,
    pub renew_at: Timestamp,
    pub expires_at: Timestamp,
    /// The keys that certificates were asked for, by device.
    pub asked: Vec<(usize, String)>,
    pub devices: usize,
    pub rounds: u32,
    pub personal: bool,
    pub round: u32,
    pub attempt: u32,
    pub stage: Stage,
    /// In the roster's order.
    pub cohort: Vec<usize>,
    dealt: Vec<ShareKeys>,
    sum: Vec<u32>,
    announced: BTreeMap<(&'static str, usize), Vec<u8>>,
    /// What was taken in this round, by kind and device.
    taken: BTreeMap<(&'static str, usize), Vec<u8>>,
    pub published: Vec<Published>,
    /// From this state on, the device is gone, for good.
    pub drops: BTreeMap<usize, RoundState>,
    gone: BTreeSet<usize>,
    pub abandoned: Vec<(usize, u32, &'static str)>,
    /// What devices said they refuse.
    pub refused: Vec<(usize, RefusalCode)>,
    given_up: Vec<usize>,
    pub complaints: Vec<(usize, u16)>,
    /// Rounds that ended without a sum.
    pub failed: Vec<u32>,
    /// Who takes part in each attempt.
    pub rosters: BTreeMap<(u32, u32), Roster>,
    /// Who said that it has left an attempt for good.
    pub departed: BTreeMap<(u32, u32), BTreeMap<usize, AbortStatement>>,
    /// Everything any device ever wanted to say in a session, by attempt, kind and device: always the same.
    pub said: BTreeMap<(u32, u32, &'static str, usize), Vec<u8>>,
    /// Requests of any kind, in order.
    pub calls: Vec<(usize, &'static str)>,
    pub faults: BTreeMap<(usize, &'static str), VecDeque<Fault>>,
    pub tweak_terms: Option<fn(&mut SessionTerms)>,
    pub tweak: Option<fn(&mut Assignment)>,
    /// Bends what is announced.
    pub bend: Option<Bend>,
    /// Bends what is dealt before it is taken: as a dishonest dealer would.
    pub bend_dealt: Option<fn(usize, ShareKeys) -> ShareKeys>,
    /// Without secure aggregation, whatever was asked for.
    pub plain: bool,
    /// With a privacy mechanism; [`World::open`] it again once this is set.
    pub privacy: Option<PrivacyTerms>,
    /// Everybody trains ahead of the round; [`World::open`] it again once this is set.
    pub ahead: Option<TrainedAhead>,
}

/// How participants train ahead of the round, and which lies they are told.
#[derive(Clone, Copy)]
pub struct TrainedAhead {
    /// The version that each starts from.
    pub from: u32,
    /// How many versions behind the round's base an update may start from.
    pub max_staleness: u32,
    /// Who is served [`doctored`] bytes instead of that version's.
    pub served_doctored: fn(usize) -> bool,
    /// What the round says of that version.
    pub told: Told,
}

/// Which digest the round has of a version of which some were served other bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// That of the honest bytes.
    Honest,
    /// That of the doctored bytes.
    Doctored,
    /// To each that of what it was served, in the terms of one session.
    EachItsOwn,
    /// The same, with terms to go with it.
    EachItsOwnTerms,
}

/// A version of which nobody learns anything: every value is [`DEAD`].
pub fn doctored(personal: bool) -> Vec<u8> {
    let honest = Coordinator::published(personal, 0);
    let mut model = Parameters::zeros(Arc::new(checkpoint::read_layout(&honest).unwrap()));
    model.values_mut().fill(DEAD);
    checkpoint::write(&model).unwrap()
}

/// What device so-and-so is told instead.
pub type Bend = Arc<dyn Fn(Announcement, usize, Vec<u8>) -> Vec<u8> + Send + Sync>;

fn name(what: Announcement) -> &'static str {
    match what {
        Announcement::Roster => "roster",
        Announcement::Delivery => "delivery",
        Announcement::Survivors => "survivors",
        Announcement::Agreement => "agreement",
    }
}

pub fn kind(what: Answer) -> &'static str {
    match what {
        Answer::KeyShares => "key_shares",
        Answer::Complaint => "complaint",
        Answer::Consistency => "consistency",
        Answer::UnmaskShares => "unmask_shares",
    }
}

fn problem<T>(kind: ProblemType) -> Result<T, TransportError> {
    Err(Problem::new(kind, "of the test").into())
}

impl World {
    fn new(devices: usize, rounds: u32) -> Self {
        let mut world = Self {
            accomplices: BTreeMap::new(),
            renew_at: Timestamp(i64::MAX),
            expires_at: Timestamp(i64::MAX),
            asked: vec![],
            devices,
            rounds,
            personal: false,
            round: 0,
            attempt: 1,
            stage: Stage::Nothing,
            cohort: vec![],
            dealt: vec![],
            sum: vec![],
            announced: BTreeMap::new(),
            taken: BTreeMap::new(),
            published: vec![],
            drops: BTreeMap::new(),
            gone: BTreeSet::new(),
            abandoned: vec![],
            refused: vec![],
            given_up: vec![],
            complaints: vec![],
            failed: vec![],
            rosters: BTreeMap::new(),
            departed: BTreeMap::new(),
            said: BTreeMap::new(),
            calls: vec![],
            faults: BTreeMap::new(),
            tweak_terms: None,
            tweak: None,
            bend: None,
            bend_dealt: None,
            plain: false,
            privacy: None,
            ahead: None,
        };
        world.open(1, 1);
        world
    }

    /// Begins an attempt; whatever was before is over.
    pub fn open(&mut self, round: u32, attempt: u32) {
        (self.round, self.attempt) = (round, attempt);
        let name = Round::new(task().0.as_bytes(), round.into(), attempt);
        let model_hash = self.told(None, round - 1).0;
        let keys = CollectKeys::new(name, model_hash, self.config()).unwrap();
        self.stage = Stage::Selecting(keys, BTreeMap::new());
        (self.cohort, self.dealt, self.given_up) = (vec![], vec![], vec![]);
        self.sum = vec![0; self.shape().words as usize];
        self.announced.clear();
        self.taken.clear();
    }

    /// Of the terms of privacy, as both sides derive it.
    pub fn grid(&self) -> Option<(PlanRequest, PrivateCodec)> {
        self.privacy.as_ref().map(|terms| derive(terms, if self.personal { 3 } else { 5 }))
    }

    fn encoding(&self) -> Encoding {
        let staleness = self.ahead.map(|ahead| Staleness { a: 0.0, p: 1.0, max: ahead.max_staleness });
        let encoding = Encoding { staleness, ..encoding() };
        match self.grid() {
            Some((request, _)) => {
                Encoding { max_cohort: request.largest_cohort(), max_weight: request.max_weight, ..encoding }
            }
            None => encoding,
        }
    }

    /// The file of a version as a device is served it when it trains ahead.
    fn file_ahead(&self, device: usize, version: u32) -> Vec<u8> {
        match self.ahead {
            Some(ahead) if version == ahead.from && (ahead.served_doctored)(device) => doctored(self.personal),
            _ => Coordinator::published(self.personal, version),
        }
    }

    /// The digest of a version in the round, as a device is told; or as all agree on.
    fn told(&self, device: Option<usize>, version: u32) -> Digest {
        let own = device.map(|device| self.file_ahead(device, version));
        let honest = || Coordinator::published(self.personal, version);
        let file = match self.ahead {
            Some(ahead) if version == ahead.from => match ahead.told {
                Told::Honest => honest(),
                Told::Doctored => doctored(self.personal),
                Told::EachItsOwn | Told::EachItsOwnTerms => own.unwrap_or_else(honest),
            },
            _ => honest(),
        };
        sha256(&file)
    }

    /// Digests of the versions that an update may start from before this one, the latest first.
    fn earlier(&self, device: Option<usize>, version: u32) -> Vec<Digest> {
        let most = self.ahead.map_or(0, |ahead| ahead.max_staleness);
        (0..version).rev().take(most as usize).map(|version| self.told(device, version)).collect()
    }

    /// What a device is told to train ahead of the round.
    fn training(&self, device: usize, from: u32) -> Assignment {
        let file = self.file_ahead(device, from);
        let base = ModelRef { version: from, sha256: sha256(&file), bytes: file.len() as u64 };
        let terms = SessionTerms::from(&self.config_from(None, from));
        let earlier = self.earlier(None, from);
        Assignment {
            attempt: 1,
            base,
            earlier,
            update: None,
            secure_aggregation: Some(terms),
            ..self.assignment_of(device)
        }
    }

    fn shape(&self) -> VectorShape {
        let (words, input_bound, noise_margin) = match self.grid() {
            Some((_, codec)) => (codec.len(), codec.input_bound(), codec.noise_margin()),
            None => (codec(self.personal).len(), codec(self.personal).input_bound(), 0),
        };
        VectorShape { words: words as u64, modulus_bits: 32, input_bound, noise_margin }
    }

    pub fn config(&self) -> SessionConfig {
        self.config_from(None, self.round - 1)
    }

    fn config_from(&self, device: Option<usize>, version: u32) -> SessionConfig {
        let encoding = self.encoding();
        let application = application_digest(&encoding, &metrics(), self.privacy.as_ref());
        let training = training_digest(&application, "task", &model(self.personal), &TrainingPlan::default());
        SessionConfig {
            suite: 1,
            min_cohort: 3,
            max_cohort: encoding.max_cohort as u16,
            max_corrupt: 0,
            max_dropout: if self.privacy.is_some() { 0 } else { 400_000 },
            min_included: self.privacy.as_ref().map_or(0, |terms| terms.smallest_cohort as u16),
            model: self.shape(),
            scalars: VectorShape::NONE,
            application: round_digest(&training, version, &self.earlier(device, version)).0,
        }
    }

    fn terms(&self, device: usize) -> SessionTerms {
        let has_own = self.ahead.is_some_and(|ahead| ahead.told == Told::EachItsOwnTerms);
        let mut terms = SessionTerms::from(&self.config_from(has_own.then_some(device), self.round - 1));
        self.tweak_terms.iter().for_each(|tweak| tweak(&mut terms));
        terms
    }

    /// What the first device is told.
    pub fn assignment(&self) -> Assignment {
        self.assignment_of(0)
    }

    fn assignment_of(&self, device: usize) -> Assignment {
        let file = Coordinator::published(self.personal, self.round - 1);
        let mut assignment = Assignment {
            task: task(),
            task_name: "task".into(),
            round: self.round,
            attempt: self.attempt,
            model: model(self.personal),
            base: ModelRef {
                version: self.round - 1,
                sha256: self.told(Some(device), self.round - 1),
                bytes: file.len() as u64,
            },
            earlier: self.earlier(Some(device), self.round - 1),
            training: TrainingPlan::default(),
            encoding: self.encoding(),
            metrics: metrics(),
            privacy: self.privacy.clone(),
            secure_aggregation: (!self.plain).then(|| self.terms(device)),
            report_loss: false,
            update: self.ahead.map(|ahead| HeldUpdate { serial: 1, version: ahead.from }),
            groups: None,
            counted: None,
            cohort: self.devices as u32,
            deadline_at: Timestamp(0),
            remaining_ms: 1 << 40,
        };
        self.tweak.iter().for_each(|tweak| tweak(&mut assignment));
        assignment
    }

    pub fn is_gone(&self, device: usize) -> bool {
        self.gone.contains(&device)
    }

    fn authority(&self) -> Authority {
        let accomplices = self.accomplices.values().map(|ca| ca.pem.as_str());
        let all = accomplices.chain([ca_pem()]).collect::<String>();
        Authority::any_of(Issuers::from_pem(&all).unwrap(), TODAY)
    }

    fn enroll(&mut self, device: usize, csr_pem: &str) -> EnrollReply {
        self.asked.push((device, csr_pem.to_owned()));
        let ca = self.accomplices.get(&device).map_or(&*CA, |ca| ca);
        EnrollReply {
            participant: id(device),
            name: format!("device-{device}"),
            certificate_pem: ca.certify(csr_pem, id(device)),
            expires_at: self.expires_at,
            renew_at: self.renew_at,
        }
    }

    fn check_in(&mut self, device: usize, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        if self.round > self.rounds {
            return Ok(CheckInReply::TaskOver { task: task() });
        }
        if self.plain {
            return Ok(CheckInReply::Assigned(Box::new(self.assignment_of(device))));
        }
        if let (Some(ahead), None) = (self.ahead, request.training) {
            return Ok(CheckInReply::Train(Box::new(self.training(device, ahead.from))));
        }
        let (round, attempt) = (self.round, self.attempt);
        let authority = self.authority();
        let terms = self.terms(device);
        if let Stage::Selecting(keys, enrolled) = &mut self.stage {
            let given = request.keys.as_ref().filter(|keys| (keys.round, keys.attempt) == (round, attempt));
            let Some(given) = given else {
                let invitation = Invitation { task: task(), round, attempt, terms, base: None };
                return Ok(CheckInReply::Invited(Box::new(invitation)));
            };
            let advertise = Advertise::decode(&given.advertisement.0).unwrap();
            let admitted = keys.admit(advertise, &authority).unwrap().into_message();
            let before = enrolled.entry(device).or_insert_with(|| admitted.clone());
            assert_eq!(before.advertise, admitted.advertise, "one advertisement per attempt");
            self.settle();
        }
        let is_member = self.cohort.contains(&device) && !self.given_up.contains(&device);
        if is_member && !self.taken.contains_key(&("input", device)) {
            return Ok(CheckInReply::Assigned(Box::new(self.assignment_of(device))));
        }
        Ok(CheckInReply::ComeBack { after_ms: 500 })
    }

    /// As a coordinator does that asks for an input once more which it has.
    pub fn forget_input(&mut self, device: usize) {
        self.taken.remove(&("input", device));
    }

    /// Does not wait for a device in this round any more.
    pub fn give_up(&mut self, device: usize) {
        self.given_up.push(device);
    }

    /// Closes the stage once everybody who is left has answered.
    pub fn settle(&mut self) {
        loop {
            let state = self.stage.state();
            self.gone.extend(self.drops.iter().filter(|(_, from)| **from <= state).map(|(device, _)| *device));
            let members: Vec<usize> =
                if self.cohort.is_empty() { (0..self.devices).collect() } else { self.cohort.clone() };
            let is_live = |device: &&usize| !self.given_up.contains(device) && !self.is_gone(**device);
            let expected = members.iter().filter(is_live).count();
            let got = match &self.stage {
                Stage::Selecting(_, keys) => keys.len(),
                Stage::Sharing(_, shares) => shares.len(),
                Stage::Collecting(_, inputs) => inputs.len(),
                Stage::Confirming(_, signed) => signed.len(),
                Stage::Unmasking(_, shares) => shares.len(),
                Stage::Nothing => return,
            };
            if got < expected {
                return;
            }
            self.close();
        }
    }

    fn close(&mut self) {
        fn stored<M>(messages: Vec<M>) -> Vec<Admitted<M>> {
            messages.into_iter().map(Admitted::from_store).collect()
        }
        let fail = |world: &mut Self| {
            world.failed.push(world.round);
            world.next();
        };
        match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Selecting(keys, enrolled) => {
                self.cohort = enrolled.keys().copied().collect();
                let Ok(next) = keys.close(stored(enrolled.into_values().collect())) else { return fail(self) };
                self.rosters.insert((self.round, self.attempt), next.roster().clone());
                for device in 0..self.devices {
                    self.announced.insert(("roster", device), next.roster().encode());
                }
                self.stage = Stage::Sharing(next, vec![]);
            }
            Stage::Sharing(sharing, shares) => {
                self.dealt = shares.clone();
                let Ok(next) = sharing.close(stored(shares)) else { return fail(self) };
                for (recipient, device) in (1..).zip(self.cohort.clone()) {
                    let sealed = |dealer: u16| {
                        let of = self.dealt.iter().find(|shares| shares.body.sender == dealer)?;
                        of.body.sealed_for(recipient).copied()
                    };
                    if let Some(delivery) = next.delivery(recipient, sealed) {
                        self.announced.insert(("delivery", device), delivery.encode());
                    }
                }
                self.stage = Stage::Collecting(next, vec![]);
            }
            Stage::Collecting(collecting, inputs) => {
                let Ok(next) = collecting.close(stored(inputs)) else { return fail(self) };
                for device in 0..self.devices {
                    self.announced.insert(("survivors", device), next.announcement().encode());
                }
                self.stage = Stage::Confirming(next, vec![]);
            }
            Stage::Confirming(confirming, signed) => {
                let Ok(next) = confirming.close(stored(signed)) else { return fail(self) };
                for device in 0..self.devices {
                    self.announced.insert(("agreement", device), next.agreement().encode());
                }
                self.stage = Stage::Unmasking(next, vec![]);
            }
            Stage::Unmasking(unmasking, shares) => {
                let Ok(opened) = unmasking.close(stored(shares)) else { return fail(self) };
                let mut sum = std::mem::take(&mut self.sum);
                mask::apply(&opened.plan(Plane::Model).unwrap(), 0, &mut sum).unwrap();
                let survivors =
                    opened.survivors().iter().map(|position| self.cohort[usize::from(position) - 1]).collect();
                self.published.push(Published { round: self.round, sum, survivors });
                self.next();
            }
            Stage::Nothing => {}
        }
    }

    fn next(&mut self) {
        if self.round < self.rounds {
            self.open(self.round + 1, 1);
        } else {
            self.round += 1;
        }
    }

    fn check_place(&self, place: Place) -> Result<(), TransportError> {
        if (place.round, place.attempt) == (self.round, self.attempt) {
            Ok(())
        } else {
            problem(ProblemType::PhaseClosed)
        }
    }

    /// The same again is answered as the first was; anything else is a conflict that must never happen.
    fn is_repeated(&self, kind: &'static str, device: usize, bytes: &[u8]) -> bool {
        match self.taken.get(&(kind, device)) {
            Some(before) => {
                assert_eq!(before, bytes, "{kind} of device {device} changed");
                true
            }
            None => false,
        }
    }

    fn take(&mut self, what: Answer, device: usize, place: Place, body: &[u8]) -> Result<(), TransportError> {
        if (place.round, place.attempt) != (self.round, self.attempt) {
            // Of a round that is over: the same as before is fine, and the journal of this world forgets the rest.
            let before = self.said.get(&(place.round, place.attempt, kind(what), device));
            let was_published = self.published.iter().any(|done| done.round == place.round);
            return if was_published && before.is_some() { Ok(()) } else { problem(ProblemType::PhaseClosed) };
        }
        if self.is_repeated(kind(what), device, body) {
            return Ok(());
        }
        if self.given_up.contains(&device) {
            return problem(ProblemType::NotAssigned);
        }
        match (&mut self.stage, what) {
            (Stage::Sharing(sharing, shares), Answer::KeyShares) => {
                let message = ShareKeys::decode(body).unwrap();
                let message = sharing.admit(message).unwrap().into_message();
                shares.push(self.bend_dealt.map_or(message.clone(), |bend| bend(device, message)));
            }
            (Stage::Collecting(collecting, _), Answer::Complaint) => {
                let complaint = Complaint::decode(body).unwrap();
                let accused = complaint.body.accused;
                let shares = self.dealt.iter().find(|shares| shares.body.sender == accused).unwrap();
                collecting.judge(&complaint, shares).unwrap();
                self.complaints.push((device, accused));
                self.failed.push(self.round);
                self.next();
                return Ok(());
            }
            (Stage::Confirming(confirming, signed), Answer::Consistency) => {
                signed.push(confirming.admit(Consistency::decode(body).unwrap()).unwrap().into_message());
            }
            (Stage::Unmasking(unmasking, shares), Answer::UnmaskShares) => {
                shares.push(unmasking.admit(Unmasking::decode(body).unwrap()).unwrap().into_message());
            }
            _ => return problem(ProblemType::PhaseClosed),
        }
        self.taken.insert((kind(what), device), body.to_vec());
        self.settle();
        Ok(())
    }

    fn upload(&mut self, device: usize, upload: &Upload) -> Result<Receipt, TransportError> {
        let Upload { place, sha256: digest, body, signed, .. } = upload;
        assert_eq!(sha256(body), *digest);
        let receipt = Receipt { sha256: *digest, bytes: body.len() as u64, accepted_at: Timestamp(0) };
        self.check_place(*place)?;
        if self.is_repeated("input", device, body) {
            return Ok(receipt);
        }
        if self.given_up.contains(&device) {
            return problem(ProblemType::NotAssigned);
        }
        let Stage::Collecting(collecting, inputs) = &mut self.stage else {
            return problem(ProblemType::PhaseClosed);
        };
        let message = MaskedInput::decode(signed.as_ref().unwrap()).unwrap();
        let message = collecting.admit(message).unwrap().into_message();
        assert_eq!(upload::digest(body), message.body.digest, "the signature is on this body");
        inputs.push(message);
        let modulus = modular::Modulus::new(32).unwrap();
        let words = packing::unpack(body, self.sum.len(), modulus).unwrap();
        modular::add_assign(&mut self.sum, &words);
        self.taken.insert(("input", device), body.to_vec());
        self.settle();
        Ok(receipt)
    }
}

/// The world, shared by all devices.
#[derive(Clone)]
pub struct Hub(pub Arc<Mutex<World>>);

impl Hub {
    pub fn new(devices: usize, rounds: u32) -> Self {
        Self(Arc::new(Mutex::new(World::new(devices, rounds))))
    }

    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub fn line(&self, device: usize) -> Line {
        Line { hub: self.clone(), device }
    }
}

/// One device's connection.
#[derive(Clone)]
pub struct Line {
    hub: Hub,
    device: usize,
}

impl Line {
    fn go<T>(
        &self,
        call: &'static str,
        effect: impl FnOnce(&mut World, &Fault) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        self.hub.world(|world| {
            world.calls.push((self.device, call));
            let lost = || Err(TransportError::Unreachable("scripted".into()));
            if world.is_gone(self.device) {
                return lost();
            }
            let faults = world.faults.get_mut(&(self.device, call));
            match faults.and_then(VecDeque::pop_front).unwrap_or(Fault::None) {
                Fault::Lost => lost(),
                Fault::AnswerLost => effect(world, &Fault::None).and_then(|_| lost()),
                Fault::Refused(kind, _) => problem(kind),
                fault => effect(world, &fault),
            }
        })
    }
}

#[async_trait]
impl Transport for Line {
    fn identify(&self, _: &Identity) -> Result<(), TransportError> {
        Ok(())
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.go("enroll", |world, _| Ok(world.enroll(self.device, request.csr_pem.as_deref().unwrap())))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.go("renew", |world, _| Ok(world.enroll(self.device, request.csr_pem.as_deref().unwrap())))
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        self.go("check_in", |world, _| world.check_in(self.device, request))
    }

    async fn fetch_model(&self, _: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        let file = self.go("fetch", |world, _| Ok(world.file_ahead(self.device, model.version)))?;
        sink.extend_from_slice(&file[sink.len()..]);
        Ok(())
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        self.go("upload", |world, _| world.upload(self.device, upload))
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Place,
        participant: ParticipantId,
        _: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        assert_eq!(participant, id(self.device));
        self.go(name(what), |world, _| {
            world.check_place(place)?;
            if world.given_up.contains(&self.device) {
                return problem(ProblemType::NotAssigned);
            }
            let said = world.announced.get(&(name(what), self.device)).cloned();
            let said = said.map(|said| match &world.bend {
                Some(bend) => bend(what, self.device, said),
                None => said,
            });
            Ok(said.map(Bytes::from))
        })
    }

    async fn evidence(&self, place: Place, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        self.go("evidence", |world, _| {
            world.check_place(place)?;
            let position = world.cohort.iter().position(|device| *device == index(dealer)).unwrap() + 1;
            let shares = world.dealt.iter().find(|shares| usize::from(shares.body.sender) == position).unwrap();
            Ok(shares.encode().into())
        })
    }

    async fn answer(
        &self,
        what: Answer,
        place: Place,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        assert_eq!(participant, id(self.device));
        self.go(kind(what), |world, _| world.take(what, self.device, place, &body))
    }

    async fn abort_statement(
        &self,
        place: Place,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        assert_eq!(participant, id(self.device));
        self.go("abort_statement", |world, _| {
            let statement = AbortStatement::decode(&body).unwrap();
            let roster = world.rosters[&(place.round, place.attempt)].clone();
            Ended::new(roster, &Recorded).unwrap().admit(&statement).unwrap();
            world.departed.entry((place.round, place.attempt)).or_default().insert(self.device, statement);
            Ok(())
        })
    }

    async fn abort_statements(&self, place: Place) -> Result<Option<Bytes>, TransportError> {
        self.go("abort_statements", |world, _| {
            let place = (place.round, place.attempt);
            let Some(said) = world.departed.get(&place) else { return Ok(None) };
            let roster = world.rosters[&place].clone();
            let is_enough = said.len() >= usize::from(roster.threshold);
            Ok(is_enough.then(|| Unopened::of(roster, said.values().cloned()).encode().into()))
        })
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        self.go("abandon", |world, _| {
            let Abandonment { place, reason, refusal, .. } = *abandonment;
            world.abandoned.push((self.device, place.round, reason.as_str()));
            world.refused.extend(refusal.map(|code| (self.device, code)));
            if place.round == world.round {
                world.given_up.push(self.device);
                if world.plain {
                    world.next();
                } else {
                    world.settle();
                }
            }
            Ok(())
        })
    }
}

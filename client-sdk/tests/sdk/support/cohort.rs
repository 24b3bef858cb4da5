//! A coordinator that runs the real phases of secure aggregation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client_sdk::transport::{Abandonment, TransportError, Upload};
use secure_agg::codec::Message as _;
use secure_agg::mask::{self, Plane};
use secure_agg::messages::{Advertise, Complaint, Consistency, MaskedInput, RoundId, ShareKeys, Unmasking};
use secure_agg::server::{
    Admitted, CollectConsistency, CollectKeys, CollectMasked, CollectShares, CollectUnmasking, Enrolled,
};
use secure_agg::{modular, packing, upload};
use wire::certificate::{Authority, Issuers};
use wire::participant::{
    Announcement, Answer, Assignment, CheckInReply, CheckInRequest, EnrollReply, Invitation, PrivacyTerms, Receipt,
    RefusalCode, SessionTerms,
};
use wire::problem::ProblemType;
use wire::{Attempt, ParticipantId, RoundState, Timestamp};

use super::assignments::TrainedAhead;
use super::line::Line;
use super::link::{Fault, problem};
use super::{CA, Ca, ca_pem, sha256, task};

/// Some day on which the certificates hold.
pub(crate) const TODAY: Timestamp = Timestamp(1_790_000_000_000);

pub(crate) fn id(device: usize) -> ParticipantId {
    format!("00000000-0000-0000-0000-0000000001{device:02}").parse().unwrap()
}

fn index(participant: ParticipantId) -> usize {
    (0..100).find(|device| id(*device) == participant).unwrap()
}

/// Where the round stands, with what came in.
#[derive(Default)]
pub(crate) enum Stage {
    Selecting(CollectKeys, BTreeMap<usize, Enrolled>),
    Sharing(CollectShares, Vec<ShareKeys>),
    Collecting(CollectMasked, Vec<MaskedInput>),
    Confirming(CollectConsistency, Vec<Consistency>),
    Unmasking(CollectUnmasking, Vec<Unmasking>),
    /// Between two stages.
    #[default]
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
pub(crate) struct Published {
    pub(crate) round: u32,
    pub(crate) sum: Vec<u32>,
    pub(crate) survivors: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct World {
    /// Certifies these devices instead of the authority that their apps name.
    pub(crate) accomplices: BTreeMap<usize, Arc<Ca>>,
    /// When certificates must be renewed and when they end; `None` means unlimited.
    pub(crate) renew_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    /// The keys of certificate requests, by device.
    pub(crate) asked: Vec<(usize, String)>,
    pub(crate) devices: usize,
    pub(crate) rounds: u32,
    pub(crate) personal: bool,
    pub(crate) round: u32,
    pub(crate) attempt: u32,
    pub(crate) stage: Stage,
    /// In the roster's order.
    pub(crate) cohort: Vec<usize>,
    dealt: Vec<ShareKeys>,
    sum: Vec<u32>,
    announced: BTreeMap<(&'static str, usize), Vec<u8>>,
    /// What was taken in this round, by kind and device.
    taken: BTreeMap<(&'static str, usize), Vec<u8>>,
    pub(crate) published: Vec<Published>,
    /// From this state on, the device is gone, for good.
    pub(crate) drops: BTreeMap<usize, RoundState>,
    gone: BTreeSet<usize>,
    pub(crate) abandoned: Vec<(usize, u32, &'static str)>,
    /// What devices said they refuse.
    pub(crate) refused: Vec<(usize, RefusalCode)>,
    given_up: Vec<usize>,
    pub(crate) complaints: Vec<(usize, u16)>,
    /// Rounds that ended without a sum.
    pub(crate) failed: Vec<u32>,
    /// Everything any device ever wanted to say in a session, by attempt, kind and device: always the same.
    pub(crate) said: BTreeMap<(u32, u32, &'static str, usize), Vec<u8>>,
    /// Requests of any kind, in order.
    pub(crate) calls: Vec<(usize, &'static str)>,
    pub(crate) faults: BTreeMap<(usize, &'static str), VecDeque<Fault>>,
    pub(crate) tweak_terms: Option<fn(&mut SessionTerms)>,
    pub(crate) tweak: Option<fn(&mut Assignment)>,
    /// Bends what is announced.
    pub(crate) bend: Option<Bend>,
    /// Bends what is dealt before it is taken: as a dishonest dealer would.
    pub(crate) bend_dealt: Option<fn(usize, ShareKeys) -> ShareKeys>,
    /// Without secure aggregation, for any settings.
    pub(crate) plain: bool,
    /// With a privacy mechanism; [`World::open`] it again once this is set.
    pub(crate) privacy: Option<PrivacyTerms>,
    /// All train asynchronously; [`World::open`] the round again once this is set.
    pub(crate) ahead: Option<TrainedAhead>,
}

/// The forged message to a device.
pub(crate) type Bend = Arc<dyn Fn(Announcement, usize, Vec<u8>) -> Vec<u8> + Send + Sync>;

pub(crate) fn name(what: Announcement) -> &'static str {
    match what {
        Announcement::Roster => "roster",
        Announcement::Delivery => "delivery",
        Announcement::Survivors => "survivors",
        Announcement::Agreement => "agreement",
    }
}

pub(crate) fn kind(what: Answer) -> &'static str {
    match what {
        Answer::KeyShares => "key_shares",
        Answer::Complaint => "complaint",
        Answer::Consistency => "consistency",
        Answer::UnmaskShares => "unmask_shares",
    }
}

impl World {
    fn new(devices: usize, rounds: u32) -> Self {
        let mut world = Self { devices, rounds, ..Self::default() };
        world.open(1, 1);
        world
    }

    /// Begins an attempt; whatever was before is over.
    pub(crate) fn open(&mut self, round: u32, attempt: u32) {
        (self.round, self.attempt) = (round, attempt);
        let name = RoundId::new(task().0.as_bytes(), round.into(), attempt);
        let model_hash = self.stated_digest(None, round - 1).0;
        let keys = CollectKeys::new(name, model_hash, self.config()).unwrap();
        self.stage = Stage::Selecting(keys, BTreeMap::new());
        (self.cohort, self.dealt, self.given_up) = (vec![], vec![], vec![]);
        self.sum = vec![0; self.shape().words as usize];
        self.announced.clear();
        self.taken.clear();
    }

    pub(crate) fn is_gone(&self, device: usize) -> bool {
        self.gone.contains(&device)
    }

    fn authority(&self) -> Authority {
        let accomplices = self.accomplices.values().map(|ca| ca.pem.as_str());
        let all = accomplices.chain([ca_pem()]).collect::<String>();
        Authority::any_of(Issuers::from_pem(&all).unwrap(), TODAY)
    }

    pub(crate) fn enroll(&mut self, device: usize, csr_pem: &str) -> EnrollReply {
        self.asked.push((device, csr_pem.to_owned()));
        let ca = self.accomplices.get(&device).map_or(&*CA, |ca| ca);
        EnrollReply {
            participant: id(device),
            name: format!("device-{device}"),
            certificate_pem: ca.certify(csr_pem, id(device)),
            expires_at: self.expires_at.unwrap_or(Timestamp(i64::MAX)),
            renew_at: self.renew_at.unwrap_or(Timestamp(i64::MAX)),
        }
    }

    pub(crate) fn check_in(&mut self, device: usize, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        if self.round > self.rounds {
            return Ok(CheckInReply::TaskOver { task: task(), model: None });
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
                let invitation = Invitation { task: task(), round, attempt, terms };
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
        Ok(CheckInReply::ComeBack { after_ms: 500, waiting_for: vec![] })
    }

    /// Like a coordinator that requests an input again although it has it.
    pub(crate) fn forget_input(&mut self, device: usize) {
        self.taken.remove(&("input", device));
    }

    /// Does not wait for a device in this round any more.
    pub(crate) fn give_up(&mut self, device: usize) {
        self.given_up.push(device);
    }

    /// Closes the stage once all remaining devices have answered.
    pub(crate) fn settle(&mut self) {
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

    fn check_place(&self, place: Attempt) -> Result<(), TransportError> {
        if (place.round, place.attempt) == (self.round, self.attempt) {
            Ok(())
        } else {
            problem(ProblemType::PhaseClosed)
        }
    }

    /// A repeated message gets the first answer. A different message is a conflict and fails the test.
    fn is_repeated(&self, kind: &'static str, device: usize, bytes: &[u8]) -> bool {
        match self.taken.get(&(kind, device)) {
            Some(before) => {
                assert_eq!(before, bytes, "{kind} of device {device} changed");
                true
            }
            None => false,
        }
    }

    pub(crate) fn take(
        &mut self,
        what: Answer,
        device: usize,
        place: Attempt,
        body: &[u8],
    ) -> Result<(), TransportError> {
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

    pub(crate) fn upload(&mut self, device: usize, upload: &Upload) -> Result<Receipt, TransportError> {
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

    pub(crate) fn announce(
        &self,
        what: Announcement,
        device: usize,
        place: Attempt,
    ) -> Result<Option<Bytes>, TransportError> {
        self.check_place(place)?;
        if self.given_up.contains(&device) {
            return problem(ProblemType::NotAssigned);
        }
        let said = self.announced.get(&(name(what), device)).cloned();
        let said = said.map(|said| match &self.bend {
            Some(bend) => bend(what, device, said),
            None => said,
        });
        Ok(said.map(Bytes::from))
    }

    pub(crate) fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        self.check_place(place)?;
        let position = self.cohort.iter().position(|device| *device == index(dealer)).unwrap() + 1;
        let shares = self.dealt.iter().find(|shares| usize::from(shares.body.sender) == position).unwrap();
        Ok(shares.encode().into())
    }

    pub(crate) fn abandon(&mut self, device: usize, abandonment: &Abandonment) {
        let Abandonment { place, reason, refusal, .. } = *abandonment;
        self.abandoned.push((device, place.round, reason.as_str()));
        self.refused.extend(refusal.map(|code| (device, code)));
        if place.round == self.round {
            self.given_up.push(device);
            if self.plain {
                self.next();
            } else {
                self.settle();
            }
        }
    }
}

/// The world, shared by all devices.
#[derive(Clone)]
pub(crate) struct Hub(pub Arc<Mutex<World>>);

impl Hub {
    pub(crate) fn new(devices: usize, rounds: u32) -> Self {
        Self(Arc::new(Mutex::new(World::new(devices, rounds))))
    }

    pub(crate) fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub(crate) fn line(&self, device: usize) -> Line {
        Line::new(self.clone(), device)
    }
}

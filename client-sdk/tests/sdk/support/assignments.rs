//! Assignments of a cohort's devices: versions, sessions, places, and lies.

use std::sync::Arc;

use client_sdk::learning::privacy::{PlanRequest, PrivateCodec};
use client_sdk::learning::{Parameters, checkpoint};
use recipe::digest::{application_digest, round_digest, training_digest};
use secure_agg::params::{SessionConfig, VectorShape};
use task_spec::{Staleness, TrainingPlan};
use wire::Digest;
use wire::participant::{Assignment, Encoding, HeldUpdate, ModelRef, SessionTerms};

use super::cohort::World;
use super::private::derive;
use super::trainers::DEAD;
use super::words::{self, codec, encoding, metrics};
use super::{Coordinator, model, sha256};

/// Asynchronous training, and the lies in it.
#[derive(Clone, Copy)]
pub(crate) struct TrainedAhead {
    /// The version that each starts from.
    pub(crate) from: u32,
    /// How many versions behind the round's base an update may start from.
    pub(crate) max_staleness: u32,
    /// Selects the devices that get [`doctored`] bytes in place of the version's own.
    pub(crate) served_doctored: fn(usize) -> bool,
    /// The round's description of that version.
    pub(crate) stated: StatedDigest,
}

/// The digest stated by the round for a version with doctored copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StatedDigest {
    /// That of the honest bytes.
    Honest,
    /// That of the doctored bytes.
    Doctored,
    /// Each device gets the digest of its own copy, in the terms of one session.
    EachItsOwn,
    /// The same, with terms to go with it.
    EachItsOwnTerms,
}

/// A version without information: every value is [`DEAD`].
pub(crate) fn doctored(personal: bool) -> Vec<u8> {
    let honest = Coordinator::published(personal, 0);
    let mut model = Parameters::zeros(Arc::new(checkpoint::read_layout(&honest).unwrap()));
    model.values_mut().fill(DEAD);
    checkpoint::write(&model).unwrap()
}

impl World {
    /// Of the terms of privacy, as both sides derive it.
    pub(crate) fn grid(&self) -> Option<(PlanRequest, PrivateCodec)> {
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
    pub(crate) fn file_ahead(&self, device: usize, version: u32) -> Vec<u8> {
        match self.ahead {
            Some(ahead) if version == ahead.from && (ahead.served_doctored)(device) => doctored(self.personal),
            _ => Coordinator::published(self.personal, version),
        }
    }

    /// The digest of a version in the round, as sent to a device or as agreed.
    pub(crate) fn stated_digest(&self, device: Option<usize>, version: u32) -> Digest {
        let own = device.map(|device| self.file_ahead(device, version));
        let honest = || Coordinator::published(self.personal, version);
        let file = match self.ahead {
            Some(ahead) if version == ahead.from => match ahead.stated {
                StatedDigest::Honest => honest(),
                StatedDigest::Doctored => doctored(self.personal),
                StatedDigest::EachItsOwn | StatedDigest::EachItsOwnTerms => own.unwrap_or_else(honest),
            },
            _ => honest(),
        };
        sha256(&file)
    }

    /// Digests of the versions that an update may start from before this one, the latest first.
    fn earlier(&self, device: Option<usize>, version: u32) -> Vec<Digest> {
        let most = self.ahead.map_or(0, |ahead| ahead.max_staleness);
        (0..version).rev().take(most as usize).map(|version| self.stated_digest(device, version)).collect()
    }

    /// The asynchronous training of a device.
    pub(crate) fn training(&self, device: usize, from: u32) -> Assignment {
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

    pub(crate) fn shape(&self) -> VectorShape {
        let (words, input_bound, noise_margin) = match self.grid() {
            Some((_, codec)) => (codec.len(), codec.input_bound(), codec.noise_margin()),
            None => (codec(self.personal).len(), codec(self.personal).input_bound(), 0),
        };
        VectorShape { words: words as u64, modulus_bits: 32, input_bound, noise_margin }
    }

    pub(crate) fn config(&self) -> SessionConfig {
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

    pub(crate) fn terms(&self, device: usize) -> SessionTerms {
        let has_own = self.ahead.is_some_and(|ahead| ahead.stated == StatedDigest::EachItsOwnTerms);
        let mut terms = SessionTerms::from(&self.config_from(has_own.then_some(device), self.round - 1));
        self.tweak_terms.iter().for_each(|tweak| tweak(&mut terms));
        terms
    }

    /// The messages to the first device.
    pub(crate) fn assignment(&self) -> Assignment {
        self.assignment_of(0)
    }

    pub(crate) fn assignment_of(&self, device: usize) -> Assignment {
        let file = Coordinator::published(self.personal, self.round - 1);
        let base = ModelRef {
            version: self.round - 1,
            sha256: self.stated_digest(Some(device), self.round - 1),
            bytes: file.len() as u64,
        };
        let mut assignment = Assignment {
            attempt: self.attempt,
            earlier: self.earlier(Some(device), self.round - 1),
            encoding: self.encoding(),
            privacy: self.privacy.clone(),
            secure_aggregation: (!self.plain).then(|| self.terms(device)),
            update: self.ahead.map(|ahead| HeldUpdate { serial: 1, version: ahead.from }),
            cohort: self.devices as u32,
            remaining_ms: 1 << 40,
            ..words::assignment(model(self.personal), base)
        };
        self.tweak.iter().for_each(|tweak| tweak(&mut assignment));
        assignment
    }
}

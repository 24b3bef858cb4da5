//! Secure aggregation: the terms that a participant receives before it generates keys, and the routes of messages.
//!
//! The messages themselves are `secure_agg::messages`, sent in their own encoding
//! ([`crate::headers::MEDIA_SECURE_AGG`]).

use federation::id::{Attempt, Digest, TaskId};
use federation::round::RoundState;

use serde::{Deserialize, Serialize};
use task_spec::{ModelSpec, TrainingPlan};

use super::{Encoding, PrivacyTerms, SessionTerms};
use crate::base64::Base64;

/// A round is about to draw its cohort: generate keys for this attempt, and check in with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Invitation {
    pub task: TaskId,
    pub round: u32,
    pub attempt: u32,
    /// The session's terms; the roster must contain the same.
    pub terms: SessionTerms,
    /// [`base_digest`] of the round's base, if masks alone hide an update: a participant that has already given an
    /// update from it has no second one and need not generate keys. Absent if participants add their own noise, and
    /// from older coordinators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
}

impl Invitation {
    /// Which attempt it invites to.
    #[must_use]
    pub fn attempt_key(&self) -> Attempt {
        Attempt { task: self.task, round: self.round, attempt: self.attempt }
    }
}

/// Keys made for an attempt: what a participant that was invited checks in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundKeys {
    pub task: TaskId,
    pub round: u32,
    pub attempt: u32,
    /// `secure_agg::messages::Advertise`.
    pub advertisement: Base64,
}

impl RoundKeys {
    /// Which attempt the keys are for.
    #[must_use]
    pub fn attempt_key(&self) -> Attempt {
        Attempt { task: self.task, round: self.round, attempt: self.attempt }
    }
}

/// Digest of what gives the words of an update their meaning: encoding, names of the metrics and terms of privacy. With
/// [`round_digest`] it is a part of the session's id, so participants that were told different ones cannot be aggregated.
///
/// `SHA-256("tributary/application/1" || bits || f32be(clip) || [1 || f32be(norm)] or [0] || u32be(max_weight) ||
/// u32be(max_cohort) || u32be(metrics) || for each: u32be(len) || name)`, and with privacy terms `u32be(len) ||
/// `[`PrivacyTerms::to_bytes`], with a codec before those `u32be(2^32 - 1) || u32be(len) ||
/// `[`CodecTerms::to_bytes`](super::CodecTerms::to_bytes), and with a method of personalization at the end
/// `"personalization" || u32be(len) || `[`task_spec::Personalization::to_bytes`], and for a divided cohort after that
/// `"groups" || u32be(size)`, and for updates trained ahead of rounds after that `"staleness" || `
/// [`task_spec::Staleness::to_bytes`], and with a solver after that `"solver" || u32be(len) || `
/// [`task_spec::Solver::to_bytes`].
#[must_use]
pub fn application_digest(encoding: &Encoding, metrics: &[String], privacy: Option<&PrivacyTerms>) -> Digest {
    let mut text = b"tributary/application/1".to_vec();
    text.push(encoding.modulus_bits);
    text.extend(encoding.clip_range.to_be_bytes());
    match encoding.clip_norm {
        Some(norm) => {
            text.push(1);
            text.extend(norm.to_be_bytes());
        }
        None => text.push(0),
    }
    text.extend(encoding.max_weight.to_be_bytes());
    text.extend(encoding.max_cohort.to_be_bytes());
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    text.extend(length(metrics.len()));
    for name in metrics {
        text.extend(length(name.len()));
        text.extend(name.as_bytes());
    }
    if let Some(compression) = &encoding.compression {
        let compression = compression.to_bytes();
        // No privacy terms are that long.
        text.extend(u32::MAX.to_be_bytes());
        text.extend(length(compression.len()));
        text.extend(compression);
    }
    if let Some(terms) = privacy {
        let terms = terms.to_bytes();
        text.extend(length(terms.len()));
        text.extend(terms);
    }
    if let Some(analytics) = &encoding.analytics {
        let words = analytics.to_bytes();
        text.extend(b"analytics");
        text.extend(length(words.len()));
        text.extend(words);
    }
    if let Some(method) = &encoding.personalization {
        let method = method.to_bytes();
        text.extend(b"personalization");
        text.extend(length(method.len()));
        text.extend(method);
    }
    if let Some(groups) = encoding.groups {
        text.extend(b"groups");
        text.extend(groups.size.to_be_bytes());
    }
    if let Some(staleness) = &encoding.staleness {
        text.extend(b"staleness");
        text.extend(staleness.to_bytes());
    }
    if let Some(solver) = &encoding.solver {
        let solver = solver.to_bytes();
        text.extend(b"solver");
        text.extend(length(solver.len()));
        text.extend(solver);
    }
    sha256(&text)
}

/// Digest of everything that determines an update besides data, version and chance: the meaning of the words
/// ([`application_digest`]), the task and model, the tensors that stay local, and the training plan with the μ of the
/// round. A coordinator that makes all participants but one stand still, through their plans or through a model with
/// vanishing gradients, would find that one's update in the sum. With this digest in the session id ([`round_digest`])
/// there is no such sum.
///
/// `SHA-256("tributary/training/1" || application || for task name, model and plan: u32be(len) || bytes)`; model and
/// plan are serialized as JSON by this crate: no spaces, keys in the order of the fields of [`ModelSpec`] and
/// [`TrainingPlan`], those of `architecture` sorted, numbers in their shortest form.
#[must_use]
pub fn training_digest(application: &Digest, task: &str, model: &ModelSpec, plan: &TrainingPlan) -> Digest {
    let mut text = [b"tributary/training/1".as_slice(), &application.0].concat();
    for part in [task.as_bytes(), &json(model), &json(plan)] {
        text.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        text.extend(part);
    }
    sha256(&text)
}

/// Digest of the participants' work in a round: [`training_digest`]; the number of the base version, from which the age
/// of updates is counted; and, if updates are trained ahead of rounds, the files of all earlier versions that one may
/// have started from ([`Assignment::earlier`](super::Assignment::earlier)). Otherwise a coordinator could make all but
/// one participant train from useless bytes. The session id covers the bytes of the base version by a separate digest.
///
/// `SHA-256("tributary/round/1" || training || u32be(version))`, and with earlier versions at the end `"earlier" ||
/// u32be(count) || for each: its digest`, the newest first.
#[must_use]
pub fn round_digest(training: &Digest, version: u32, earlier: &[Digest]) -> Digest {
    let mut text = b"tributary/round/1".to_vec();
    text.extend(training.0);
    text.extend(version.to_be_bytes());
    if !earlier.is_empty() {
        text.extend(b"earlier");
        text.extend(u32::try_from(earlier.len()).unwrap_or(u32::MAX).to_be_bytes());
        earlier.iter().for_each(|digest| text.extend(digest.0));
    }
    sha256(&text)
}

/// Digest of a round's base, by which a participant knows whether it has already given an input from it, in any task:
/// the digest of the version's file, or of an analysis and its state, since many analyses start from equal states.
///
/// `version`, or `SHA-256("tributary/analysis base/1" || u32be(len) || words of the analysis || version)`.
#[must_use]
pub fn base_digest(encoding: &Encoding, version: Digest) -> Digest {
    let Some(analytics) = &encoding.analytics else { return version };
    let words = analytics.to_bytes();
    let length = u32::try_from(words.len()).unwrap_or(u32::MAX).to_be_bytes();
    sha256(&[b"tributary/analysis base/1".as_slice(), &length, &words, &version.0].concat())
}

fn json(told: &impl Serialize) -> Vec<u8> {
    // Numbers, names, lists and enumerations: serialization cannot fail.
    serde_json::to_vec(told).unwrap_or_default()
}

fn sha256(text: &[u8]) -> Digest {
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text).as_ref());
    digest
}

/// The coordinator's messages to a participant during a session, each fetched by a `GET` that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Announcement {
    /// `Roster`: the participants; the same for all.
    Roster,
    /// `Delivery`: the shares dealt to this participant.
    Delivery,
    /// `Survivors`: the included inputs; the same for all.
    Survivors,
    /// `Agreement`: the signatures on the survivors; the same for all.
    Agreement,
}

impl Announcement {
    /// Every kind, in protocol order.
    pub const ALL: [Self; 4] = [Self::Roster, Self::Delivery, Self::Survivors, Self::Agreement];

    /// The state of the round in which it is published.
    #[must_use]
    pub fn state(self) -> RoundState {
        match self {
            Self::Roster => RoundState::Sharing,
            Self::Delivery => RoundState::Collecting,
            Self::Survivors => RoundState::Confirming,
            Self::Agreement => RoundState::Unmasking,
        }
    }
}

/// A participant's messages during a session, except its masked input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// `ShareKeys`.
    KeyShares,
    /// `Complaint`, instead of a masked input.
    Complaint,
    /// `Consistency`.
    Consistency,
    /// `Unmasking`.
    UnmaskShares,
}

impl Answer {
    /// Every kind, in protocol order.
    pub const ALL: [Self; 4] = [Self::KeyShares, Self::Complaint, Self::Consistency, Self::UnmaskShares];

    /// The state of the round in which it is accepted.
    #[must_use]
    pub fn state(self) -> RoundState {
        match self {
            Self::KeyShares => RoundState::Sharing,
            Self::Complaint => RoundState::Collecting,
            Self::Consistency => RoundState::Confirming,
            Self::UnmaskShares => RoundState::Unmasking,
        }
    }
}

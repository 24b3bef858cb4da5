//! Digests and seeds derived by both sides from assignments: the session's binding, and the common randomness of an attempt's cohort.

use serde::Serialize;
use task_spec::{ModelSpec, TrainingPlan};
use wire::participant::{CodecTerms, Encoding, PrivacyTerms};
use wire::{Attempt, Digest};

/// Digest of the meaning of an update's words: encoding, metric names and privacy terms. Through [`round_digest`] it is part of the
/// session's id, so updates under different terms cannot be aggregated.
///
/// `SHA-256("tributary/application/1" || bits || f32be(clip) || [1 || f32be(norm)] or [0] || u32be(max_weight) || u32be(max_cohort) ||
/// u32be(metrics) || for each: u32be(len) || name)`, and before the end, where they are given, in this order: a codec as `u32be(2^32 - 1)
/// || u32be(len) || JSON of `[`CodecTerms`]; terms of privacy as `u32be(len) || JSON of `[`PrivacyTerms`]; an analysis, a method of
/// personalization and a solver each as its name, `u32be(len)` and `to_bytes` of its type in `task_spec`; between the last two `"groups" ||
/// u32be(size)` and `"staleness" || ` [`task_spec::Staleness::to_bytes`]. JSON is compact, in the order of the fields.
#[must_use]
pub fn application_digest(encoding: &Encoding, metrics: &[String], privacy: Option<&PrivacyTerms>) -> Digest {
    let mut text = Text(b"tributary/application/1".to_vec());
    text.raw(&[encoding.modulus_bits]);
    text.raw(&encoding.clip_range.to_be_bytes());
    match encoding.clip_norm {
        Some(norm) => {
            text.raw(&[1]);
            text.raw(&norm.to_be_bytes());
        }
        None => text.raw(&[0]),
    }
    text.raw(&encoding.max_weight.to_be_bytes());
    text.raw(&encoding.max_cohort.to_be_bytes());
    text.raw(&length(metrics.len()));
    metrics.iter().for_each(|name| text.part(name.as_bytes()));
    if let Some(compression) = &encoding.compression {
        // Privacy terms are shorter than that.
        text.raw(&u32::MAX.to_be_bytes());
        text.part(&json(compression));
    }
    if let Some(terms) = privacy {
        text.part(&json(terms));
    }
    if let Some(analytics) = &encoding.analytics {
        text.raw(b"analytics");
        text.part(&analytics.to_bytes());
    }
    if let Some(method) = &encoding.personalization {
        text.raw(b"personalization");
        text.part(&method.to_bytes());
    }
    if let Some(groups) = encoding.groups {
        text.raw(b"groups");
        text.raw(&groups.size.to_be_bytes());
    }
    if let Some(staleness) = &encoding.staleness {
        text.raw(b"staleness");
        text.raw(&staleness.to_bytes());
    }
    if let Some(solver) = &encoding.solver {
        text.raw(b"solver");
        text.part(&solver.to_bytes());
    }
    text.digest()
}

/// Digest of all inputs of an update except data, model version and randomness: the meaning of its words ([`application_digest`]), task and
/// model, the local tensors, and the training plan with the round's μ. A coordinator could make all participants but one learn nothing, by
/// their plans or by a model with vanishing gradients, and would find that one's update in the sum; with this digest in the session's id
/// ([`round_digest`]), such a sum cannot be opened.
///
/// `SHA-256("tributary/training/1" || application || for task name, model and plan: u32be(len) || bytes)`; model and plan are their JSON as
/// this crate writes it: no spaces, keys in the order of the fields of [`ModelSpec`] and [`TrainingPlan`], those of `architecture` sorted,
/// numbers in their shortest form.
#[must_use]
pub fn training_digest(application: &Digest, task: &str, model: &ModelSpec, plan: &TrainingPlan) -> Digest {
    let mut text = Text([b"tributary/training/1".as_slice(), &application.0].concat());
    [task.as_bytes(), &json(model), &json(plan)].iter().for_each(|part| text.part(part));
    text.digest()
}

/// Digest of the participants' computation in a round: [`training_digest`]; the number of the round's base version, from which the
/// staleness of updates is counted; and, with training ahead of rounds, the files of all earlier versions from which an update may have
/// started ([`Assignment::earlier`](wire::participant::Assignment::earlier)). Otherwise a coordinator could have all but one participant
/// train from a file without gradients. The base version's file has a digest of its own in the session's id.
///
/// `SHA-256("tributary/round/1" || training || u32be(version))`, and with earlier versions at the end `"earlier" || u32be(count) || for
/// each: its digest`, the newest first.
#[must_use]
pub fn round_digest(training: &Digest, version: u32, earlier: &[Digest]) -> Digest {
    let mut text = Text(b"tributary/round/1".to_vec());
    text.raw(&training.0);
    text.raw(&version.to_be_bytes());
    if !earlier.is_empty() {
        text.raw(b"earlier");
        text.raw(&length(earlier.len()));
        earlier.iter().for_each(|digest| text.raw(&digest.0));
    }
    text.digest()
}

/// Digest of the participants' computation in every round based on a version: [`training_digest`] with a μ of 0 where it adapts, since
/// nothing else in a task's terms changes from round to round. The clipping norm is that of the version.
///
/// `SHA-256("tributary/task/1" || that digest)`.
#[must_use]
pub fn task_digest(application: &Digest, task: &str, model: &ModelSpec, plan: &TrainingPlan) -> Digest {
    let proximal_mu = if plan.adaptive_mu.is_some() { 0.0 } else { plan.proximal_mu };
    let plan = TrainingPlan { proximal_mu, ..plan.clone() };
    let mut text = Text(b"tributary/task/1".to_vec());
    text.raw(&training_digest(application, task, model, &plan).0);
    text.digest()
}

/// Seed of the rotation shared by all updates of an attempt. Public: rotation equalizes coordinates and hides nothing.
///
/// `SHA-256("tributary/rotation/1" || task || u32be(round) || u32be(attempt))`.
#[must_use]
pub fn rotation_seed(attempt: Attempt) -> Digest {
    let mut text = Text(b"tributary/rotation/1".to_vec());
    text.raw(attempt.task.0.as_bytes());
    text.raw(&attempt.round.to_be_bytes());
    text.raw(&attempt.attempt.to_be_bytes());
    text.digest()
}

/// Seed of a codec's draws for the whole cohort of an attempt: rotations, coordinates, bases; zeros without a codec. Public: a codec's
/// draws hide nothing.
///
/// `SHA-256("tributary/codec/1" || u64be(seed) || u32be(round) || u32be(attempt))`.
#[must_use]
pub fn codec_seed(codec: Option<&CodecTerms>, attempt: Attempt) -> Digest {
    let Some(codec) = codec else { return Digest([0; 32]) };
    let mut text = Text(b"tributary/codec/1".to_vec());
    text.raw(&codec.seed.to_be_bytes());
    text.raw(&attempt.round.to_be_bytes());
    text.raw(&attempt.attempt.to_be_bytes());
    text.digest()
}

#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    let mut digest = Digest([0; 32]);
    digest.0.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    digest
}

/// The bytes to be digested.
struct Text(Vec<u8>);

impl Text {
    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Appends the length, then the bytes.
    fn part(&mut self, bytes: &[u8]) {
        self.raw(&length(bytes.len()));
        self.raw(bytes);
    }

    fn digest(&self) -> Digest {
        sha256(&self.0)
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

fn json(told: &impl Serialize) -> Vec<u8> {
    // Numbers, names, lists and enums: all representable in JSON, so this cannot fail.
    serde_json::to_vec(told).unwrap_or_default()
}

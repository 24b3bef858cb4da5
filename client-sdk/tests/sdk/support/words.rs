//! What a task's assignments and updates look like on the wire.

use client_sdk::Analytics;
use client_sdk::learning::{Analysis, AnalyticsSpec, Codec, QuantizationParams};
use task_spec::{ModelSpec, Personalization, TrainingPlan};
use wire::Timestamp;
use wire::participant::{Assignment, Encoding, ModelRef};

use super::task;

/// A place in the clear in the round after this version, of one participant; it has ten minutes.
pub(crate) fn assignment(model: ModelSpec, base: ModelRef) -> Assignment {
    Assignment {
        task: task(),
        task_name: "task".into(),
        round: base.version + 1,
        attempt: 1,
        model,
        base,
        provenance: None,
        earlier: Vec::new(),
        training: TrainingPlan::default(),
        encoding: encoding(),
        metrics: metrics(),
        privacy: None,
        secure_aggregation: None,
        report_loss: false,
        update: None,
        groups: None,
        traceparent: None,
        counted: None,
        cohort: 1,
        deadline_at: Timestamp(0),
        remaining_ms: 600_000,
        collect_ms: None,
    }
}

/// Has the participant tune the model for itself, which is a second training in each round.
pub(crate) fn fine_tuned(assignment: &mut Assignment) {
    assignment.encoding.personalization = Some(Personalization::FineTune { epochs: Some(1), learning_rate: None });
}

pub(crate) fn encoding() -> Encoding {
    Encoding {
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 100,
        max_cohort: 10,
        compression: None,
        analytics: None,
        personalization: None,
        staleness: None,
        groups: None,
        solver: None,
    }
}

/// What such a task computes.
pub(crate) fn analysis(analytics: &Analytics) -> Analysis {
    let Encoding { modulus_bits, max_cohort, .. } = encoding();
    Analysis::new(AnalyticsSpec::read(analytics).unwrap(), modulus_bits, max_cohort).unwrap()
}

pub(crate) fn metrics() -> Vec<String> {
    vec!["loss".into(), "train_loss".into()]
}

pub(crate) fn codec(personal: bool) -> Codec {
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, .. } = encoding();
    let (parameters, metrics) = (if personal { 3 } else { 5 }, metrics().len());
    Codec::new(QuantizationParams { parameters, modulus_bits, clip_range, clip_norm, max_weight, max_cohort, metrics })
        .unwrap()
}

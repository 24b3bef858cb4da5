//! Terms of privacy, and what follows from them.

use client_sdk::learning::privacy::{PlanRequest, PrivateCodec, TaskFacts};
use serde_json::json;
use wire::participant::PrivacyTerms;

/// The mechanisms there are.
pub(crate) const MECHANISMS: [&str; 5] =
    ["central_gaussian", "distributed_discrete_gaussian", "distributed_skellam", "tree", "local"];

/// For a cohort of three and two rounds, with a noise multiplier of 1 and updates clipped to 0.5.
pub(crate) fn terms(mechanism: &str) -> PrivacyTerms {
    let spec = json!({ "mechanism": mechanism, "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 0.5 } });
    let terms = json!({ "spec": spec, "cohort": 3, "smallest_cohort": 3, "colluders": 0, "rounds": 2, "clip": 0.5 });
    serde_json::from_value(terms).unwrap()
}

/// As a coordinator derives it.
pub(crate) fn derive(terms: &PrivacyTerms, parameters: u64) -> (PlanRequest, PrivateCodec) {
    let facts = TaskFacts {
        cohort: terms.cohort,
        parameters,
        modulus_bits: 32,
        smallest_cohort: terms.smallest_cohort,
        colluders: terms.colluders,
        rounds: terms.rounds,
    };
    let request = PlanRequest::of(&terms.spec, &facts).unwrap();
    let codec = request.codec(terms.spec.noise_multiplier.unwrap()).unwrap();
    (request, codec)
}

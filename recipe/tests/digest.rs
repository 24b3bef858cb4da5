//! Digests cover everything that participants receive; known answers of another implementation.

use recipe::digest::{application_digest, codec_seed, rotation_seed, round_digest, training_digest};
use task_spec::{Analytics, Compression, ModelSpec, Personalization, Solver, Staleness, TrainingPlan};
use wire::participant::{CodecTerms, Encoding, GroupTerms};
use wire::{Attempt, Digest, TaskId};

fn top_k(k: u64, seed: u64) -> Option<CodecTerms> {
    Some(CodecTerms { codec: Compression::TopK { k, error_feedback: true }, seed })
}

fn encoding() -> Encoding {
    Encoding {
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 1000,
        max_cohort: 1024,
        compression: None,
        analytics: None,
        personalization: None,
        staleness: None,
        groups: None,
        solver: None,
    }
}

fn stale(a: f64, p: f64, max: u32) -> Encoding {
    Encoding { staleness: Some(Staleness { a, p, max }), ..encoding() }
}

fn analysis(text: &str) -> Option<Analytics> {
    serde_json::from_str(text).unwrap()
}

fn personal(method: Personalization) -> Encoding {
    Encoding { personalization: Some(method), ..encoding() }
}

fn solved(solver: Solver) -> Encoding {
    Encoding { solver: Some(solver), ..encoding() }
}

#[test]
fn the_digest_covers_everything_that_gives_words_a_meaning() {
    let metrics = ["loss".to_owned(), "accuracy".to_owned()];
    let base = application_digest(&encoding(), &metrics, None);
    assert_eq!(
        base.to_string(),
        "52a873c599e7c29d026c0291ab13045c37495c67054db7daaf2b84d03e7b87d4",
        "a known answer: an SDK of another release must find the same"
    );
    let others = [
        application_digest(&Encoding { modulus_bits: 31, ..encoding() }, &metrics, None),
        application_digest(&Encoding { clip_range: 2.0, ..encoding() }, &metrics, None),
        application_digest(&Encoding { clip_norm: Some(0.0), ..encoding() }, &metrics, None),
        application_digest(&Encoding { max_weight: 1, ..encoding() }, &metrics, None),
        application_digest(&Encoding { max_cohort: 1, ..encoding() }, &metrics, None),
        application_digest(&Encoding { analytics: analysis(r#"{"kind":"trees"}"#), ..encoding() }, &metrics, None),
        application_digest(&Encoding { analytics: analysis(r#"{"kind":"forest"}"#), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(7, 1), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(7, 2), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(8, 1), ..encoding() }, &metrics, None),
        application_digest(&solved(Solver::FedNova { steps: Some(7) }), &metrics, None),
        application_digest(&solved(Solver::FedNova { steps: Some(8) }), &metrics, None),
        application_digest(&solved(Solver::Scaffold { population: 7, steps: Some(7) }), &metrics, None),
        application_digest(&solved(Solver::Scaffold { population: 8, steps: Some(7) }), &metrics, None),
        application_digest(&personal(Personalization::FedPer {}), &metrics, None),
        application_digest(&personal(Personalization::Ditto { lambda: 0.5, epochs: None }), &metrics, None),
        application_digest(&personal(Personalization::Ditto { lambda: 0.5, epochs: Some(1) }), &metrics, None),
        application_digest(&stale(1.0, 0.5, 10), &metrics, None),
        application_digest(&stale(1.0, 0.5, 11), &metrics, None),
        application_digest(&stale(0.5, 1.0, 10), &metrics, None),
        application_digest(&Encoding { groups: Some(GroupTerms { size: 5 }), ..encoding() }, &metrics, None),
        application_digest(&Encoding { groups: Some(GroupTerms { size: 6 }), ..encoding() }, &metrics, None),
        application_digest(&encoding(), &metrics[..1], None),
        application_digest(&encoding(), &["lossaccuracy".to_owned(), String::new()], None),
        application_digest(&encoding(), &["accuracy".to_owned(), "loss".to_owned()], None),
    ];
    for (number, other) in others.iter().enumerate() {
        assert_ne!(*other, base, "{number}");
        assert!(!others[..number].contains(other), "{number}");
    }
}

/// Each field of a plan, with a value other than its default.
const CHANGES: [(&str, &str); 19] = [
    ("epochs", "2"),
    ("steps", "7"),
    ("batch_size", "7"),
    ("learning_rate", "0.30000000000000004"),
    ("momentum", "0.5"),
    ("weight_decay", "0.5"),
    ("proximal_mu", "0.5"),
    ("fairness", r#"{"q":1.0,"loss_cap":2.0}"#),
    ("solver", r#"{"name":"fed_nova"}"#),
    ("adaptive_mu", r#"{"metric":"loss"}"#),
    ("optimizer", r#"{"name":"adamw"}"#),
    ("optimizer", r#"{"name":"adamw","beta1":0.8}"#),
    ("accumulate", "2"),
    ("gradient_clip", "0.5"),
    ("schedule", r#"{"kind":"step","every":2,"factor":0.5}"#),
    ("warmup", r#"{"length":2}"#),
    ("budget", r#"{"steps":3}"#),
    ("budget", r#"{"steps":4}"#),
    ("precision", r#""bf16""#),
];

fn plan(field: &str, value: &str) -> TrainingPlan {
    serde_json::from_str(&format!("{{\"{field}\":{value}}}")).unwrap_or_else(|error| panic!("{field}: {error}"))
}

/// Another model in one respect each.
fn models() -> Vec<ModelSpec> {
    let text = |change: fn(&mut serde_json::Value)| {
        let tensors = serde_json::json!([{ "name": "a", "shape": [2] }, { "name": "b", "shape": [2] }]);
        let mut model = serde_json::json!({ "tensors": tensors });
        change(&mut model);
        serde_json::from_value(model).unwrap()
    };
    vec![
        text(|_| ()),
        text(|model| model["personal"] = serde_json::json!(["b"])),
        text(|model| model["seed"] = serde_json::json!(8)),
        text(|model| model["architecture"] = serde_json::json!({ "kind": "linear" })),
        text(|model| model["tensors"].as_array_mut().unwrap().reverse()),
        text(|model| model["tensors"][1]["shape"] = serde_json::json!([1, 2])),
        text(|model| model["tensors"][1]["init"] = serde_json::json!({ "uniform": { "bound": 0.5 } })),
    ]
}

#[test]
fn the_digest_of_a_round_covers_its_version_its_model_and_how_it_trains() {
    let (application, plain, models) = (Digest([7; 32]), TrainingPlan::default(), models());
    let training = |plan: &TrainingPlan| training_digest(&application, "digits", &models[0], plan);
    let base = round_digest(&training(&plain), 3, &[]);
    assert_eq!(
        base.to_string(),
        "13e7889b37c3293bd9d7088e41185a3983d26839de28c1312479c9880e152531",
        "a known answer, of another implementation as well"
    );
    assert_ne!(round_digest(&training(&plain), 4, &[]), base);
    let mut seen = vec![training(&plain), training_digest(&Digest([8; 32]), "digits", &models[0], &plain)];
    seen.push(training_digest(&application, "digit", &models[0], &plain));
    seen.extend(models[1..].iter().map(|model| training_digest(&application, "digits", model, &plain)));
    for (field, value) in CHANGES {
        let plan = plan(field, value);
        seen.push(training(&plan));
        let read_back: TrainingPlan = serde_json::from_slice(&serde_json::to_vec(&plan).unwrap()).unwrap();
        assert_eq!(training(&read_back), training(&plan), "{field}");
    }
    for (number, digest) in seen.iter().enumerate() {
        assert!(!seen[..number].contains(digest), "{number}");
    }
    // Every new field must be part of the agreement.
    let fields = serde_json::to_value(plan("solver", r#"{"name":"fed_nova"}"#)).unwrap();
    assert!(fields.as_object().unwrap().keys().all(|key| CHANGES.iter().any(|(field, _)| field == key)));
}

#[test]
fn the_digest_of_a_round_covers_every_version_that_updates_may_start_from() {
    let (training, [a, b]) = (Digest([7; 32]), [1, 2].map(|byte| Digest([byte; 32])));
    let digest = |earlier: &[Digest]| round_digest(&training, 3, earlier).to_string();
    // hashlib.sha256(b"tributary/round/1" + b"\7" * 32 + struct.pack(">I", 3) + b"earlier" + struct.pack(">I", 2) + b"\1" * 32 + b"\2" *
    // 32).hexdigest(), and without "earlier" and the rest.
    assert_eq!(digest(&[a, b]), "baa05e0e7659580af74af242e79703241f5f15607f4b9d16386a2a63ef1895e3", "a known answer");
    assert_eq!(digest(&[]), "c390ab60b60862ef261bd64b7d0b726976631bd7d329ded1f05f0dc44b86a96a", "a known answer");
    let others = [digest(&[a]), digest(&[b]), digest(&[b, a]), digest(&[a, a]), digest(&[a, b, a])];
    for (number, other) in others.iter().enumerate() {
        assert!(![digest(&[a, b]), digest(&[])].contains(other), "{number}");
        assert!(!others[..number].contains(other), "{number}");
    }
}

#[test]
fn every_attempt_draws_anew_and_a_repeated_task_the_same() {
    let task = TaskId(uuid::Uuid::from_u128(1));
    let seed = |seed, round, attempt| codec_seed(top_k(7, seed).as_ref(), Attempt { task, round, attempt });
    assert_eq!(seed(1, 2, 3), seed(1, 2, 3));
    for other in [seed(2, 2, 3), seed(1, 3, 3), seed(1, 2, 4)] {
        assert_ne!(other, seed(1, 2, 3));
    }
}

#[test]
fn public_seeds_of_an_attempt_are_what_they_are_documented_to_be() {
    let task = TaskId("00112233-4455-6677-8899-aabbccddeeff".parse().unwrap());
    let attempt = Attempt { task, round: 258, attempt: 3 };
    let rotation = rotation_seed(attempt);
    assert_eq!(rotation.to_string(), "8b05ab02db054d497538df3ed86aa01dac76f44960973e1eb929183dbfbd1986");
    let codec = codec_seed(top_k(7, 1).as_ref(), attempt);
    assert_eq!(codec.to_string(), "dc49cb2159291e8a450d533a4da0825d008b54844f970f8bb92e1bf920676017");
}

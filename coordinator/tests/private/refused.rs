//! Rejections of tasks with a privacy mechanism, and the computed noise of a task that only sets its budget.

use federation::round::RoundState;
use serde_json::{Value, json};
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::support::private::{in_the_clear, mechanism};
use crate::support::secure::{World, spec};
use crate::support::{Reply, TestCoordinator};

async fn create(t: &TestCoordinator, change: impl FnOnce(&mut Value)) -> Reply {
    let mut spec = spec(10);
    change(&mut spec);
    t.post(&t.operator, route::TASKS, &json!({ "spec": spec })).await
}

/// Asserts a rejection for this field with this text.
#[track_caller]
fn assert_refused(reply: &Reply, field: &str, says: &[&str]) {
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.status, 422, "{field}: {text}");
    reply.problem(ProblemType::InvalidTask);
    let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
    let found: Vec<_> = problem.errors.iter().filter(|error| error.field == field).collect();
    let hit = found.iter().any(|error| says.iter().all(|part| error.detail.contains(part)));
    assert!(hit, "{field} with {says:?} is missing in {text}");
}

fn set(spec: &mut Value, path: &str, value: Value) {
    let mut place = spec;
    for part in path.split('.') {
        place = &mut place[part];
    }
    *place = value;
}

/// Sets cohorts of this size.
fn of(spec: &mut Value, cohort: u32) {
    spec["rounds"]["select_max"] = json!(cohort);
    spec["selection"]["cohort"] = json!({ "count": cohort });
}

#[tokio::test]
async fn figures_that_promise_nothing_are_refused() {
    let t = TestCoordinator::start().await;
    for (path, value, field, says) in [
        ("privacy.clip", json!({ "fixed": 0.0 }), "privacy.clip.fixed", "above 0"),
        ("privacy.clip", json!({ "fixed": -1.0 }), "privacy.clip.fixed", "above 0"),
        ("privacy.clip", json!({ "adaptive": { "initial": 0.0 } }), "privacy.clip.adaptive", "above 0"),
        (
            "privacy.clip",
            json!({ "adaptive": { "initial": 1.0, "quantile": 1.0 } }),
            "privacy.clip.adaptive",
            "quantile",
        ),
        ("privacy.clip", json!(null), "privacy.clip", "must be given"),
        ("privacy.delta", json!(1.0), "privacy.delta", "below 1"),
        ("privacy.delta", json!(0.0), "privacy.delta", "above 0"),
        ("privacy.delta", json!(null), "privacy.delta", "above 0"),
        ("privacy.epsilon", json!(0.0), "privacy.epsilon", "above 0"),
        ("privacy.epsilon", json!(-8.0), "privacy.epsilon", "above 0"),
        ("privacy.noise_multiplier", json!(0.0), "privacy.noise_multiplier", "0.01"),
        ("privacy.noise_multiplier", json!(null), "privacy.noise_multiplier", "epsilon"),
        ("privacy.max_weight", json!(0), "privacy.max_weight", "at least 1"),
        ("privacy.against", json!("server"), "privacy.against", "sees the sum"),
        ("aggregation", json!({ "clip_norm": 1.0 }), "aggregation.clip_norm", "twice"),
    ] {
        let reply = create(&t, |spec| {
            mechanism(spec, "central_gaussian");
            set(spec, path, value);
        });
        assert_refused(&reply.await, field, &[says]);
    }
    let reply = create(&t, |spec| {
        mechanism(spec, "central_gaussian");
        spec["privacy"]["epsilon"] = json!(8.0);
        spec["privacy"]["noise_multiplier"] = json!(0.0);
    });
    assert_refused(&reply.await, "privacy.noise_multiplier", &["without noise every budget is exceeded"]);
    let reply = create(&t, |spec| spec["privacy"] = json!({ "epsilon": 8.0, "delta": 1e-5 }));
    assert_refused(&reply.await, "privacy.mechanism", &["choose a mechanism"]);
    // JSON has no NaN; the error names its position.
    let reply = create(&t, |spec| {
        mechanism(spec, "central_gaussian");
        spec["privacy"]["clip"] = json!({ "fixed": "NaN" });
    });
    let reply = reply.await;
    assert_eq!(reply.status, 400);
    assert!(String::from_utf8_lossy(&reply.body).contains("NaN"), "{reply:?}");
    assert_eq!(t.get(&t.viewer, "/v1/tasks").await.json()["items"], json!([]), "none of them is there");
}

#[tokio::test]
async fn noise_that_hides_nothing_is_refused_with_what_would_do() {
    let t = TestCoordinator::start().await;
    // Too few bits for a useful share of noise: suggests more bits, a larger modulus, or the other distribution.
    let narrow = |name: &'static str| {
        move |spec: &mut Value| {
            mechanism(spec, name);
            of(spec, 100);
            spec["privacy"]["noise_multiplier"] = json!(0.01);
            spec["secure_aggregation"]["modulus_bits"] = json!(16);
        }
    };
    let reply = create(&t, narrow("distributed_discrete_gaussian")).await;
    assert_refused(&reply, "privacy.noise_multiplier", &["units in all would do", "distributed_skellam"]);
    assert_eq!(create(&t, narrow("distributed_skellam")).await.status, 201);
    for name in ["distributed_discrete_gaussian", "distributed_skellam"] {
        let reply = create(&t, |spec| in_the_clear(spec, name)).await;
        assert_refused(&reply, "privacy.mechanism", &["needs secure aggregation"]);
    }
    // A budget requires noise.
    let reply = create(&t, |spec| {
        mechanism(spec, "central_gaussian");
        spec["privacy"]["noise_multiplier"] = json!(null);
        spec["privacy"]["epsilon"] = json!(1e-7);
    });
    assert_refused(&reply.await, "privacy.epsilon", &["no noise multiplier", "would still be"]);
}

#[tokio::test]
async fn sums_that_have_no_room_are_refused_with_the_bits_that_have() {
    let t = TestCoordinator::start().await;
    for name in ["central_gaussian", "distributed_discrete_gaussian", "local"] {
        let bits = |bits: u8| {
            move |spec: &mut Value| {
                mechanism(spec, name);
                of(spec, 1000);
                spec["secure_aggregation"]["modulus_bits"] = json!(bits);
            }
        };
        let reply = create(&t, bits(16)).await;
        assert_refused(&reply, "secure_aggregation.modulus_bits", &["would do"]);
        let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
        let text = &problem.errors[0].detail;
        let named = (17..=32).rev().find(|bits| text.contains(&format!("{bits} bits")));
        let named = named.unwrap_or_else(|| panic!("{text} names no bits"));
        assert_eq!(create(&t, bits(named)).await.status, 201, "{name}: {text}");
        t.post(&t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
        assert_eq!(create(&t, bits(named - 1)).await.status, 422, "{name}: {text}");
    }
}

/// Poisson sampling of 100 participants, about thirty at a time.
fn poisson(spec: &mut Value, name: &str) {
    mechanism(spec, name);
    spec["rounds"] = json!({ "count": 2, "select_max": 1000 });
    spec["selection"] = json!({ "cohort": { "fraction": 0.3 } });
    spec["privacy"]["sampling"] = json!({ "poisson": 0.3 });
    spec["privacy"]["population"] = json!(100);
}

#[tokio::test]
async fn whatever_voids_sampling_is_refused_together_with_it() {
    let t = TestCoordinator::start().await;
    for (path, value, field, says) in [
        ("selection.over_selection", json!(0.3), "selection.over_selection", "voids"),
        ("selection.require", json!({ "min_gap_ms": 1000 }), "selection.require.min_gap_ms", "voids"),
        ("selection.require", json!({ "min_gap_rounds": 2 }), "selection.require.min_gap_rounds", "voids"),
        ("selection.require", json!({ "max_participations": 2 }), "selection.require.max_participations", "voids"),
        ("selection.seed", json!(1), "selection.seed", "voids"),
        ("selection.cohort", json!({ "count": 30 }), "selection.cohort", "fraction = 0.3"),
        ("rounds.select_min", json!(20), "rounds.select_min", "leave it out"),
        ("rounds.collect_min", json!(20), "rounds.collect_min", "leave it out"),
        ("rounds.collect_max", json!(60), "rounds.collect_max", "leave it out"),
        ("privacy.population", json!(null), "privacy.population", "enrolled"),
        ("privacy.population", json!(4), "privacy.sampling", "raise the population"),
    ] {
        let reply = create(&t, |spec| {
            poisson(spec, "central_gaussian");
            set(spec, path, value);
        });
        assert_refused(&reply.await, field, &[says]);
    }
    assert_eq!(create(&t, |spec| poisson(spec, "central_gaussian")).await.status, 201);
    let reply = create(&t, |spec| {
        mechanism(spec, "tree");
        spec["privacy"]["sampling"] = json!({ "poisson": 0.3 });
    });
    let reply = reply.await;
    assert_refused(&reply, "selection.require.max_participations", &["must be 1"]);
}

#[tokio::test]
async fn a_banded_matrix_is_for_participants_that_selection_holds_to_it() {
    let t = TestCoordinator::start().await;
    let banded = |privacy: Value, require: Value| {
        create(&t, move |spec| {
            mechanism(spec, "banded_matrix");
            for (field, value) in privacy.as_object().unwrap() {
                spec["privacy"][field] = value.clone();
            }
            spec["selection"]["require"] = require;
        })
    };
    let (most, gap) = ("selection.require.max_participations", "selection.require.min_gap_rounds");
    for (privacy, require, field, says) in [
        (json!({ "participations": 2, "separation": 3 }), json!({ "min_gap_rounds": 2 }), most, "must be 2 or less"),
        (
            json!({ "participations": 2, "separation": 3 }),
            json!({ "max_participations": 3, "min_gap_rounds": 2 }),
            most,
            "must be 2 or less",
        ),
        (json!({ "separation": 3 }), json!({ "min_gap_rounds": 1 }), gap, "must be at least 2"),
        (json!({ "participations": 2 }), json!({ "max_participations": 2 }), "privacy.separation", "how many rounds"),
        (json!({ "separation": 0 }), json!({}), "privacy.separation", "at least 1"),
        (
            json!({ "separation": 3, "against": "server" }),
            json!({ "min_gap_rounds": 2 }),
            "privacy.against",
            "adds the noise",
        ),
        (
            json!({ "separation": 3, "mechanism": "tree" }),
            json!({ "max_participations": 1 }),
            "privacy.separation",
            "leave it out",
        ),
    ] {
        assert_refused(&banded(privacy, require).await, field, &[says]);
    }
    // Two rounds of ten, each participant in one of them.
    for (privacy, require, needed) in [
        (
            json!({ "separation": 3, "population": 15 }),
            json!({ "min_gap_rounds": 2 }),
            "each in one of any 2 rounds, need",
        ),
        (
            json!({ "participations": 1, "population": 15 }),
            json!({ "max_participations": 1 }),
            "each in one round at most, need",
        ),
        (
            json!({ "mechanism": "tree", "population": 15 }),
            json!({ "max_participations": 1 }),
            "each in one round at most, need",
        ),
    ] {
        assert_refused(
            &banded(privacy, require).await,
            "privacy.population",
            &[needed, "20 participants, not 15", "cohorts of at most 7"],
        );
    }
    let taken = banded(json!({ "separation": 3, "population": 20 }), json!({ "min_gap_rounds": 2 })).await;
    assert_eq!(taken.status, 201, "{}", String::from_utf8_lossy(&taken.body));
    let t = TestCoordinator::start().await;
    let taken = create(&t, |spec| {
        mechanism(spec, "banded_matrix");
        spec["privacy"]["separation"] = json!(3);
        spec["selection"]["require"] = json!({ "min_gap_rounds": 2 });
    })
    .await;
    assert_eq!(taken.status, 201, "{}", String::from_utf8_lossy(&taken.body));
}

/// Two rounds of ten, counted.
#[tokio::test]
async fn counted_participations_reject_terms_that_cannot_be_met() {
    let t = TestCoordinator::start().await;
    let counted = |name: &'static str, privacy: Value, require: Value| {
        create(&t, move |spec| {
            mechanism(spec, name);
            for (field, value) in privacy.as_object().unwrap() {
                spec["privacy"][field] = value.clone();
            }
            spec["selection"]["require"] = require;
        })
    };
    let (most, gap) = ("selection.require.max_participations", "selection.require.min_gap_rounds");
    let once = || json!({ "max_participations": 1 });
    for name in ["distributed_discrete_gaussian", "distributed_skellam"] {
        for (privacy, require, field, says) in [
            (json!({ "participations": 1 }), json!({}), most, "must be 1 or less, and not 0"),
            (json!({ "participations": 1 }), json!({ "max_participations": 2 }), most, "must be 1 or less"),
            (
                json!({ "participations": 2, "separation": 3 }),
                json!({ "max_participations": 2, "min_gap_rounds": 1 }),
                gap,
                "must be at least 2",
            ),
            (
                json!({ "participations": 3 }),
                json!({ "max_participations": 3 }),
                "privacy.participations",
                "must be at most 2, the rounds that the noise is planned for, not 3",
            ),
            (json!({ "participations": 0 }), once(), "privacy.participations", "must be at least 1"),
            (json!({ "separation": 2 }), json!({ "min_gap_rounds": 1 }), "privacy.participations", "must be given"),
            (
                json!({ "participations": 1, "population": 40, "sampling": { "fixed_size": 10 } }),
                once(),
                most,
                "voids privacy.sampling",
            ),
            (
                json!({ "participations": 1, "population": 19 }),
                once(),
                "privacy.population",
                "need 20 participants, not 19: with these, cohorts of at most 9, or 2 participations each",
            ),
        ] {
            assert_refused(&counted(name, privacy, require).await, field, &[says]);
        }
    }
    let taken = counted("distributed_skellam", json!({ "participations": 1, "population": 20 }), once()).await;
    assert_eq!(taken.status, 201, "{}", String::from_utf8_lossy(&taken.body));
}

#[tokio::test]
async fn a_cohort_smaller_than_the_noise_counts_on_is_refused() {
    let t = TestCoordinator::start().await;
    // Ten are drawn, and the allowed dropouts leave seven: a minimum of eight is too many.
    let reply = create(&t, |spec| {
        mechanism(spec, "distributed_skellam");
        spec["secure_aggregation"]["min_cohort"] = json!(11);
    });
    let reply = reply.await;
    assert_eq!(reply.status, 422, "{}", String::from_utf8_lossy(&reply.body));
    reply.problem(ProblemType::InvalidTask);
    let reply = create(&t, |spec| {
        poisson(spec, "central_gaussian");
        spec["secure_aggregation"]["min_cohort"] = json!(40);
    });
    assert_refused(&reply.await, "privacy.sampling", &["of whom 40 must be left"]);
    let reply = create(&t, |spec| {
        poisson(spec, "central_gaussian");
        spec["secure_aggregation"]["min_cohort"] = json!(22);
    });
    assert_refused(&reply.await, "secure_aggregation.max_dropout_fraction", &["fewer than 22 of the 30"]);
}

#[tokio::test]
async fn noise_is_solved_for_and_stored_and_as_many_rounds_fit_as_were_planned() {
    for (against, sampling) in [("published", false), ("cohort_known", true), ("server", true), ("published", true)] {
        let name = if against == "server" { "distributed_skellam" } else { "central_gaussian" };
        let mut world = World::with(10, |spec| {
            if sampling {
                poisson(spec, name);
            } else {
                mechanism(spec, name);
            }
            spec["rounds"]["count"] = json!(9);
            spec["privacy"]["noise_multiplier"] = json!(null);
            spec["privacy"]["epsilon"] = json!(4.0);
            spec["privacy"]["rounds"] = json!(3);
            spec["privacy"]["against"] = json!(against);
        })
        .await;
        let report = world.ledger().await;
        let noise = report.spec.noise_multiplier.expect("the task shows the solution");
        assert_eq!(report.rounds_left, Some(3), "{against}: {noise}");
        let shown = world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json();
        assert_eq!(shown["spec"]["privacy"]["noise_multiplier"], json!(noise));
        if sampling {
            continue;
        }
        for number in 1..=3 {
            world.complete(number).await;
            assert_eq!(world.ledger().await.rounds_left, Some(3 - number));
        }
        let spent = world.ledger().await.spent.published;
        assert!(spent <= 4.0 && spent > 3.9, "{spent}");
        world.t.work().await;
        assert_eq!(world.status().await.0, "BUDGET_EXHAUSTED");
        let fourth = world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/4").await;
        assert_eq!(fourth.status, 404);
        assert_eq!(world.view(3).await.state, RoundState::Completed);
    }
}

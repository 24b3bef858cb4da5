//! A task is created with its first model, or rejected with every invalid field and its correction.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::support::{Reply, TestCoordinator, Who, secure, small_task};

async fn create(t: &TestCoordinator, spec: &Value) -> Reply {
    t.post(&t.operator, route::TASKS, &json!({ "spec": spec })).await
}

fn fields(reply: &Reply) -> Vec<String> {
    reply.problem(ProblemType::InvalidTask);
    let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
    problem.errors.into_iter().map(|error| error.field).collect()
}

#[tokio::test]
async fn a_task_is_created_with_its_first_model() {
    let t = TestCoordinator::start().await;
    let reply = create(&t, &small_task()).await;
    assert_eq!(reply.status, 201);
    let view = reply.json();
    assert_eq!(
        (&view["status"], &view["parameters"], &view["model_version"]),
        (&json!("ACTIVE"), &json!(3), &json!(0))
    );
    assert_eq!(view["protection"], json!({ "updates": "readable_by_coordinator" }));
    assert_eq!(view["history"].as_array().unwrap().len(), 1);
    let model = t.get(&t.viewer, "/v1/tasks/small/models/0").await.json();
    assert_eq!((&model["parent"], &model["round"]), (&json!(null), &json!(null)));
    // The same seed gives the same bytes.
    t.post(&t.operator, "/v1/tasks/small/cancel", &json!({})).await;
    create(&t, &small_task()).await;
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small/models/0").await.json()["sha256"], model["sha256"]);
}

#[tokio::test]
async fn a_task_that_cannot_work_is_refused_with_every_wrong_field() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["name"] = json!("no blanks please");
    spec["rounds"] = json!({ "select_min": 9, "select_max": 8, "collect_deadline_ms": 1 });
    spec["training"] = json!({ "learning_rate": -1.0 });
    let found = fields(&create(&t, &spec).await);
    for field in ["name", "rounds.select_min", "rounds.collect_deadline_ms", "training.learning_rate"] {
        assert!(found.iter().any(|found| found == field), "{field} is missing in {found:?}");
    }
}

#[tokio::test]
async fn a_model_with_no_or_too_many_parameters_is_refused() {
    let t = TestCoordinator::start().await;
    for shape in [json!([0]), json!([1_048_576, 1_048_576]), json!([u64::MAX, u64::MAX])] {
        let mut spec = small_task();
        spec["model"]["tensors"][0]["shape"] = shape;
        assert_eq!(fields(&create(&t, &spec).await), ["model.tensors"]);
    }
    let mut spec = small_task();
    spec["model"]["tensors"] = json!([]);
    assert_eq!(fields(&create(&t, &spec).await), ["model.tensors"]);
}

#[tokio::test]
async fn a_task_whose_sums_could_wrap_or_whose_patterns_match_nothing_is_refused() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["aggregation"] = json!({ "modulus_bits": 16, "max_weight": 1000 });
    assert_eq!(fields(&create(&t, &spec).await), ["aggregation"]);
    let mut spec = small_task();
    spec["model"]["personal"] = json!(["head.*"]);
    assert_eq!(fields(&create(&t, &spec).await), ["model.personal"]);
    let mut spec = small_task();
    spec["modle"] = json!({});
    let detail = create(&t, &spec).await.problem(ProblemType::MalformedRequest);
    assert!(detail.contains("modle"), "{detail}");
}

#[tokio::test]
async fn a_dry_run_judges_as_a_creation_does_and_stores_nothing() {
    let t = TestCoordinator::start().await;
    let judge = async |who: &Who, spec: &Value| {
        let request = Request::post(format!("{}?dry_run=true", route::TASKS))
            .header("content-type", "application/json")
            .header("idempotency-key", "once")
            .body(Body::from(json!({ "spec": spec }).to_string()));
        t.send(who, request.unwrap()).await
    };
    let mut wrong = small_task();
    (wrong["rounds"]["count"], wrong["name"]) = (json!(0), json!("no name"));
    let mut drawn = small_task();
    drawn["model"]["tensors"][0]["init"] = json!({ "uniform": { "bound": -1.0 } });
    for spec in [wrong, drawn] {
        let (judged, created) = (judge(&t.operator, &spec).await, create(&t, &spec).await);
        assert_eq!(fields(&judged), fields(&created));
    }
    let judged = judge(&t.operator, &small_task()).await;
    let body = judged.json();
    assert_eq!((judged.status.as_u16(), &body["parameters"], &body["update_bytes"]), (200, &json!(3), &json!(16)));
    assert_eq!(body["spec"]["name"], "small");
    assert!(!judged.headers.contains_key("etag"));
    judge(&t.viewer, &small_task()).await.problem(ProblemType::Forbidden);
    t.inner.engine.number_events().await.unwrap();
    assert_eq!(t.get(&t.viewer, route::TASKS).await.json()["items"], json!([]), "there is none");
    assert_eq!(t.get(&t.viewer, "/v1/audit?kind=task_created").await.json()["items"], json!([]));
    // Its key is unused, and its name is still free.
    let keyed =
        Request::post(route::TASKS).header("content-type", "application/json").header("idempotency-key", "once");
    let mut other = small_task();
    other["description"] = json!("another body");
    let keyed = keyed.body(Body::from(json!({ "spec": other }).to_string())).unwrap();
    assert_eq!(t.send(&t.operator, keyed).await.status, 201);
    let detail = judge(&t.operator, &small_task()).await.problem(ProblemType::Conflict);
    assert!(detail.contains("choose another name"), "{detail}");
    let unknown =
        t.post(&t.operator, &format!("{}?dry_run=maybe", route::TASKS), &json!({ "spec": small_task() })).await;
    unknown.problem(ProblemType::MalformedRequest);
}

#[tokio::test]
async fn a_value_that_its_key_does_not_take_is_told_by_the_key() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    for (value, words) in [(json!("many"), "many"), (json!(-1), "-1"), (json!(1.5), "1.5")] {
        spec["rounds"]["count"] = value;
        let reply = create(&t, &spec).await;
        let detail = reply.problem(ProblemType::MalformedRequest);
        assert!(detail.starts_with("the body: rounds.count: ") && detail.contains(words), "{detail}");
        let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
        let [error] = problem.errors.as_slice() else { panic!("{problem:?}") };
        assert_eq!(error.field, "rounds.count");
        assert!(error.detail.contains(words) && !error.detail.contains("line"), "{error:?}");
    }
    for body in ["{\"spec\":", "{\"spec\":{}} x", "{}"] {
        let request = Request::post(route::TASKS).header("content-type", "application/json").body(Body::from(body));
        let reply = t.send(&t.operator, request.unwrap()).await;
        reply.problem(ProblemType::MalformedRequest);
        assert_eq!(reply.json().get("errors"), None, "{reply:?}");
    }
}

#[tokio::test]
async fn an_analysis_is_created_with_its_first_state_or_refused_with_the_key_to_mend() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec.as_object_mut().unwrap().retain(|key, _| !["model", "training", "metrics"].contains(&key.as_str()));
    spec["name"] = json!("ages");
    spec["rounds"] = json!({ "count": 1, "select_max": 10 });
    let column = json!({ "type": "category", "name": "group", "categories": 4 });
    spec["analytics"] = json!({ "kind": "statistics", "max_rows": 100, "columns": [column] });
    assert_eq!(create(&t, &spec).await.status, 201);
    let state = t.get(&t.viewer, "/v1/tasks/ages/models/0/parameters").await.json();
    assert_eq!(state["statistics"]["columns"][0]["category"]["counts"], json!([0, 0, 0, 0]));

    let refused = async |change: &dyn Fn(&mut Value)| {
        let mut bad = spec.clone();
        change(&mut bad);
        fields(&create(&t, &bad).await)
    };
    assert_eq!(refused(&|spec| spec["rounds"]["count"] = json!(2)).await, ["rounds.count"]);
    assert_eq!(refused(&|spec| spec["analytics"]["max_rows"] = json!(0)).await, ["analytics.max_rows"]);
    assert_eq!(refused(&|spec| spec["analytics"]["kind"] = json!("medians")).await, ["analytics"]);
    assert_eq!(refused(&|spec| spec["training"] = json!({ "epochs": 3 })).await, ["training"]);
    let tensors = json!({ "tensors": [{ "name": "w", "shape": [3] }] });
    assert_eq!(refused(&|spec| spec["model"] = tensors.clone()).await, ["model"]);
}

#[tokio::test]
async fn weights_by_loss_that_cannot_work_are_refused_with_the_reason() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["training"] = json!({ "fairness": { "q": 1.0, "loss_cap": 2.5 } });
    spec["metrics"] = json!(["accuracy"]);
    assert_eq!(fields(&create(&t, &spec).await), ["aggregation.clip_norm", "metrics"]);
    spec["metrics"] = json!(["loss"]);
    spec["aggregation"] = json!({ "clip_norm": 1.0, "max_weight": 10 });
    let (field, detail) = problem(&create(&t, &spec).await);
    assert_eq!(field, "training.fairness");
    let needed = detail.split("take max_weight = ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    spec["aggregation"]["max_weight"] = json!(needed.parse::<u32>().unwrap());
    assert_eq!(create(&t, &spec).await.status, 201, "what was said would do does");
}

/// The only invalid field, and its error text.
fn problem(reply: &Reply) -> (String, String) {
    reply.problem(ProblemType::InvalidTask);
    let problem: Problem = serde_json::from_slice(&reply.body).unwrap();
    let [error] = problem.errors.as_slice() else { panic!("{problem:?}") };
    (error.field.clone(), error.detail.clone())
}

#[tokio::test]
async fn secure_aggregation_that_cannot_work_is_refused_with_what_would() {
    let t = TestCoordinator::start().await;
    // Three of four are needed: one may be missing.
    let mut spec = secure::spec(4);
    spec["rounds"]["select_max"] = json!(4);
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.6);
    let (field, detail) = problem(&create(&t, &spec).await);
    assert_eq!(field, "secure_aggregation.max_dropout_fraction");
    let largest = detail.split("at most ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let largest: u32 = largest.parse().unwrap();
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(f64::from(largest + 1) / 1e6);
    assert_eq!(problem(&create(&t, &spec).await).0, "secure_aggregation.max_dropout_fraction");
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(f64::from(largest) / 1e6);
    assert_eq!(create(&t, &spec).await.status, 201, "the largest that works does work");

    // More colluders allow fewer dropouts.
    let mut spec = secure::spec(100);
    spec["name"] = json!("other");
    spec["secure_aggregation"]["max_corrupt_fraction"] = json!(0.5);
    let (field, detail) = problem(&create(&t, &spec).await);
    assert_eq!(field, "secure_aggregation.max_dropout_fraction");
    assert!(detail.contains("threshold"), "{detail}");

    for (value, wrong) in [
        (json!({ "max_corrupt_fraction": 0.6 }), "secure_aggregation.max_corrupt_fraction"),
        (json!({ "max_dropout_fraction": 1.0 }), "secure_aggregation.max_dropout_fraction"),
        (json!({ "min_cohort": 2 }), "secure_aggregation.min_cohort"),
        (json!({ "modulus_bits": 33 }), "secure_aggregation.modulus_bits"),
        (json!({ "clip_range": 0.0 }), "secure_aggregation.clip_range"),
        (json!({ "share_deadline_ms": 1 }), "secure_aggregation.share_deadline_ms"),
        (json!({ "confirm_deadline_ms": 1 }), "secure_aggregation.confirm_deadline_ms"),
        (json!({ "unmask_deadline_ms": 1 }), "secure_aggregation.unmask_deadline_ms"),
    ] {
        let mut spec = secure::spec(4);
        spec["name"] = json!("wrong");
        spec["secure_aggregation"] = value;
        let found = fields(&create(&t, &spec).await);
        assert!(found.iter().any(|field| field == wrong), "{wrong}: {found:?}");
    }
}

#[tokio::test]
async fn sums_that_could_wrap_or_cohorts_that_are_too_small_or_large_for_it_are_refused() {
    let t = TestCoordinator::start().await;
    let mut spec = secure::spec(2);
    let found = fields(&create(&t, &spec).await);
    assert!(found.iter().all(|field| field.ends_with("min_cohort") || field.ends_with("collect_min")), "{found:?}");
    let mut large = secure::spec(4);
    large["rounds"]["select_max"] = json!(2000);
    let (field, detail) = problem(&create(&t, &large).await);
    assert!(field == "rounds.select_max" && detail.contains("1024"), "{field}: {detail}");
    // 16 bits are insufficient for this number of participants and these weights.
    spec = secure::spec(4);
    spec["secure_aggregation"]["modulus_bits"] = json!(16);
    let (field, detail) = problem(&create(&t, &spec).await);
    assert!(field == "aggregation" && !detail.is_empty(), "{field}: {detail}");
    spec["aggregation"] = json!({ "max_weight": 10 });
    assert_eq!(create(&t, &spec).await.status, 201);
}

#[tokio::test]
async fn updates_are_hidden_in_sums_by_default() {
    let t = TestCoordinator::start().await;
    let mut spec = secure::spec(4);
    spec.as_object_mut().unwrap().remove("secure_aggregation");
    let view = create(&t, &spec).await.json();
    assert_eq!(view["spec"]["secure_aggregation"]["enabled"], json!(true));
    let expected = json!({
        "updates": "hidden_in_sums", "certified_by": "coordinator", "max_corrupt_fraction": 0.1,
        "tolerated_colluders": 0, "smallest_sum": 3, "across_rounds": { "kind": "not_protected" },
    });
    assert_eq!(view["protection"], expected);
    let view = create(&t, &small_task()).await.json();
    assert_eq!(view["protection"], json!({ "updates": "readable_by_coordinator" }));
}

#[tokio::test]
async fn a_sum_of_two_is_refused_with_what_would_work() {
    let t = TestCoordinator::start().await;
    let mut spec = secure::spec(3);
    spec["secure_aggregation"] = json!({ "min_cohort": 3, "max_dropout_fraction": 0.4 });
    let (field, detail) = problem(&create(&t, &spec).await);
    assert_eq!(field, "secure_aggregation.min_cohort");
    assert!(detail.contains("at least 3 inputs") && detail.contains("leave 2 in a cohort of 3"), "{detail}");
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.3);
    assert_eq!(create(&t, &spec).await.status, 201);
}

#[tokio::test]
async fn tensors_that_stay_at_home_are_not_published() {
    let t = TestCoordinator::start().await;
    let mut spec = small_task();
    spec["model"]["tensors"] = json!([{ "name": "body", "shape": [3] }, { "name": "head", "shape": [2] }]);
    spec["model"]["personal"] = json!(["head"]);
    assert_eq!(create(&t, &spec).await.json()["parameters"], 3);
    let file = t.get(&t.viewer, "/v1/tasks/small/models/0/parameters").await.body;
    let layout = learning::checkpoint::read_layout(&file).unwrap();
    assert_eq!(layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["body"]);
}

#[tokio::test]
async fn an_idempotency_key_gives_the_first_answer_again() {
    let t = TestCoordinator::start().await;
    let send = async |key: &str, spec: &Value| {
        let request = Request::post(route::TASKS)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Body::from(json!({ "spec": spec }).to_string()))
            .unwrap();
        t.send(&t.operator, request).await
    };
    let first = send("k1", &small_task()).await;
    assert_eq!(first.status, 201);
    t.advance(Duration::from_secs(1));
    let again = send("k1", &small_task()).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    let mut other = small_task();
    other["name"] = json!("other");
    let detail = send("k1", &other).await.problem(ProblemType::Conflict);
    assert!(detail.contains("idempotency"), "{detail}");
    send("k2", &small_task()).await.problem(ProblemType::Conflict);
    send(&"k".repeat(65), &other).await.problem(ProblemType::InvalidValue);
    assert_eq!(t.get(&t.viewer, route::TASKS).await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn personalization_that_does_not_fit_the_model_is_refused_with_the_reason() {
    let t = TestCoordinator::start().await;
    let with = |method: &str, patterns: &[&str]| {
        let mut spec = small_task();
        spec["personalization"] = json!({ "method": method });
        let tensors = json!([{ "name": "w", "shape": [3, 2] }, { "name": "b", "shape": [3] }]);
        spec["model"] = json!({ "tensors": tensors, "personal": patterns });
        spec["metrics"] = json!(["accuracy", "personal_accuracy", "personal_accuracy.below.50"]);
        spec
    };
    for (method, pattern, reason) in [
        ("fed_rep", "nothing.*", "matches no tensor"),
        ("fed_rep", "*", "match every tensor"),
        ("fed_bn", "w", "no normalisation"),
    ] {
        let (field, detail) = problem(&create(&t, &with(method, &[pattern])).await);
        assert_eq!(field, "model.personal");
        assert!(detail.contains(reason), "{detail}");
    }
    let with_adapters = |layers: &[&str], rank: u32, home: &str| {
        let mut spec = with("lora", &[]);
        spec["name"] = json!("adapters");
        spec["personalization"] = json!({ "method": "lora", "layers": layers, "rank": rank, "adapters": home });
        spec
    };
    for (layers, rank, field, reason) in [
        (["v"], 1, "personalization.layers", "matches no tensor"),
        (["b"], 1, "personalization.layers", "matches no linear layer"),
        (["*"], 1, "personalization.layers", "match every tensor"),
        (["w"], 3, "personalization.rank", "rank 3 is above 2"),
    ] {
        for home in ["personal", "shared"] {
            let (got, detail) = problem(&create(&t, &with_adapters(&layers, rank, home)).await);
            assert_eq!(got, field);
            assert!(detail.contains(reason), "{detail}");
        }
    }
    // For w of 3 by 2, A of 1 by 2 and B of 3 by 1 are sent.
    let created = create(&t, &with_adapters(&["w"], 1, "shared")).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["parameters"], 5);
    let with_metrics = |metrics: serde_json::Value| {
        let mut spec = with("fed_rep", &["w"]);
        spec["metrics"] = metrics;
        spec
    };
    for (metrics, reason) in [
        (json!(["personal_accuracy", "accuracy.quantiles.3"]), "must divide 100"),
        (json!(["personal_loss", "a.quantiles.1", "b.quantiles.1", "c.quantiles.1"]), "at most 256"),
    ] {
        let (field, detail) = problem(&create(&t, &with_metrics(metrics)).await);
        assert_eq!(field, "metrics");
        assert!(detail.contains(reason), "{detail}");
    }
    assert_eq!(create(&t, &with("fed_rep", &["w"])).await.status, 201);
}

#[tokio::test]
async fn codecs_and_rules_that_do_not_fit_are_refused_with_the_key_to_mend() {
    let t = TestCoordinator::start().await;
    let (compression, rule) = ("compression", "aggregation");
    let robust = |rule: Value| json!({ "robust": rule });
    let hidden = [
        (compression, json!({ "codec": "top_k", "k": 1 }), "compression.codec", "cannot be added under masks"),
        (compression, json!({ "codec": "int8" }), "compression.codec", "cannot be added under masks"),
        (compression, json!({ "codec": "random_k", "k": 4 }), "compression.k", "k must be 1 to 3"),
        (compression, json!({ "codec": "random_k", "k": 0 }), "compression.k", "k must be 1 to 3"),
        (rule, robust(json!({ "rule": "median", "attackers": 0.05 })), "aggregation.robust", "give group_size"),
        (
            rule,
            robust(json!({ "rule": "median", "attackers": 0.05, "group_size": 3 })),
            "aggregation.robust",
            "median needs at least 3",
        ),
    ];
    let open = [
        (compression, json!({ "codec": "top_k", "k": 4 }), "compression.k", "k must be 1 to 3"),
        (compression, json!({ "codec": "top_k", "k": 0 }), "compression.k", "k must be 1 to 3"),
        (
            rule,
            robust(json!({ "rule": "trimmed_mean", "attackers": 0.4 })),
            "aggregation.robust",
            "trimmed_mean needs at least",
        ),
    ];
    let hidden = hidden.into_iter().map(|case| (secure::spec(4), case));
    let open = open.into_iter().map(|case| (small_task(), case));
    for (mut spec, (section, value, field, reason)) in hidden.chain(open) {
        spec[section] = value;
        let (got, detail) = problem(&create(&t, &spec).await);
        assert_eq!(got, field, "{spec}: {detail}");
        assert!(detail.contains(reason), "{detail}");
    }
}

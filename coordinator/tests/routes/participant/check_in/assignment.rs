//! FedProx's μ in assignments: the round's, for every participant and repeat.

use learning::{MetricValue, Update, Upload};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use recipe::{TaskModel, UpdateCodec};
use serde_json::json;

use crate::support::{TestCoordinator, config, small_task};

/// An update of a participant with this loss of the received model.
fn input(model: &TaskModel, loss: f64) -> Vec<u8> {
    let UpdateCodec::Plain(codec) = &model.codec else { panic!("the task has no privacy") };
    let metrics = vec![MetricValue { value: loss, count: 10 }];
    let update = Update { delta: vec![0.1; model.tensors.shared.len()], examples: 10, metrics };
    let upload = codec.encode(&update, None, &[0; 32], &mut ChaCha20Rng::seed_from_u64(1)).unwrap().upload;
    let Upload::Words(words) = upload else { panic!("the task has no codec") };
    secure_agg::packing::pack(&words.words, model.modulus)
}

#[tokio::test]
async fn a_round_is_told_the_mu_that_the_losses_before_it_make() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.database.url = format!("sqlite:{}", folder.path().join("c.db").display());
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    config.identity.ca_certificate_file = folder.path().join("ca.pem");
    config.identity.ca_key_file = folder.path().join("ca.key");
    let mut t = TestCoordinator::with(&config).await;
    let mut spec = small_task();
    spec["metrics"] = json!(["loss"]);
    spec["rounds"]["count"] = json!(6);
    spec["training"] = json!({
        "learning_rate": 1.0,
        "proximal_mu": 0.25,
        "adaptive_mu": { "metric": "loss", "step": 0.5, "patience": 2 },
    });
    t.create_task(&spec).await;
    let model = TaskModel::new(&serde_json::from_value(spec).unwrap()).unwrap();
    let people = [t.enroll("a").await, t.enroll("b").await];
    let who = [people[0].1.clone(), people[1].1.clone()];
    // Up after a rise, though at most 1 over the learning rate; down after two falls in a row.
    for (round, (loss, mu)) in (1..).zip([(2.0, 0.25), (2.5, 0.25), (3.0, 0.75), (2.0, 1.0), (1.0, 1.0), (1.0, 0.75)]) {
        let told = t.assigned(&who).await;
        if round == 4 {
            // A process with only the rows must return the same.
            t.restart(&config, 100).await;
        }
        let again = t.assigned(&who).await;
        for assignment in told.iter().chain(&again) {
            assert_eq!((assignment.round, assignment.training.proximal_mu), (round, mu));
        }
        for (id, who) in &people {
            assert_eq!(t.send(who, t.upload(&again[0], *id, &input(&model, loss))).await.status, 200);
        }
        t.work().await;
    }
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.json()["status"], "COMPLETED");
}

//! Serves the demo's model at the end, for `--serve`.

use std::path::Path;
use std::time::Duration;

use client_sdk::models::Architecture;
use client_sdk::train::Device;
use inference::batcher::Batching;
use inference::rollout::Rollout;
use inference::scale::Replicas;
use serde::Serialize;
use serving::{Datatype, Running, Settings, TensorMetadata, signature};
use wire::inspect::TaskView;

use super::world::World;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// How long the first version may take to be ready.
const READY: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Served<'a> {
    url: &'a str,
    model: &'a str,
    version: u32,
    /// A shell command that requests a prediction.
    curl: String,
}

/// Serves the demo's model on a free port as a regular client of its coordinator, and prints an example request.
pub(super) async fn serve(world: &World, task: &TaskView, folder: &Path, output: Output) -> Outcome<Running> {
    let name = &world.task;
    let settings = Settings {
        models: folder.join("models"),
        names: vec![name.clone()],
        listen: ([127, 0, 0, 1], 0).into(),
        health: None,
        batching: Batching::default(),
        rollout: Rollout::default(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        device: Device::Cpu,
        body_max: 16 << 20,
        cache_bytes: 0,
        replicas: Replicas::default(),
        replicas_of: None,
        name: None,
    };
    let running = serving::start(settings, None, Some(world.server.clone()), output.transfers()).await?;
    let ready = async {
        loop {
            if let [(_, Some(version))] = running.models()[..] {
                return version;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let not_ready = |_| Failure::new(Exit::Data, "no version of the model can be served: ready models alone are");
    let version = tokio::time::timeout(READY, ready).await.map_err(not_ready)?;
    let url = format!("http://{}", running.address);
    let told = Served { url: &url, model: name, version, curl: curl(&url, name, task) };
    output.event("model_served", &told);
    output.line(format!("\nVersion {version} of {name} answers at {url} (docs/SERVING.md):\n"));
    output.command(&told.curl);
    output.line("");
    Ok(running)
}

/// A command that requests a prediction for an example of zeros.
fn curl(url: &str, name: &str, task: &TaskView) -> String {
    let told = task.spec.model.architecture.clone();
    let model: Option<Architecture> = told.and_then(|told| serde_json::from_value(told).ok());
    let inputs = model.as_ref().and_then(|model| signature(model).ok()).map(|signature| signature.inputs);
    let length: i64 = match &model {
        Some(Architecture::Graph(model)) => model.graph().lengths.map_or(1, |all| 8.clamp(all.least, all.most)).into(),
        Some(_) | None => 8,
    };
    let inputs: Vec<_> = inputs.unwrap_or_default().iter().map(|input| zeros(input, length)).collect();
    format!(r#"curl {url}/v2/models/{name}/infer -d '{{"inputs":[{}]}}'"#, inputs.join(","))
}

/// An input of zeros in JSON within quotes of the shell: one example, with sequences of this length.
fn zeros(input: &TensorMetadata, length: i64) -> String {
    let name = serde_json::Value::from(&*input.name).to_string().replace('\'', r"'\''");
    let size = |(axis, &size): (usize, &i64)| match (axis, size) {
        (0, _) => 1,
        (_, -1) => length,
        (_, fixed) => fixed,
    };
    let shape: Vec<i64> = input.shape.iter().enumerate().map(size).collect();
    let (datatype, count): (_, i64) = (input.datatype.as_str(), shape.iter().product());
    let shape = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let zero = if input.datatype == Datatype::Bool { "false" } else { "0" };
    format!(
        r#"{{"name":{name},"shape":[{shape}],"datatype":"{datatype}","data":['$(yes {zero} | head -n {count} | paste -sd, -)']}}"#
    )
}

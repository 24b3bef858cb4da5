//! A large model over lines that are cut: an operator uploads it as a task's initial model, participants fetch it and send
//! updates. Measures memory during transfers, bytes sent again, and the duration of the round.
//!
//! `TRIBUTARY_LARGE_PARAMETERS` is the number of parameters; 268435456 are 1 GiB. The disk holds it about ten times.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client_sdk::transport::{Download, HttpsTransport, Manifest, Part, Request, Response, Transport as _};
use secure_agg::upload::{PART_BYTES, PartTree};
use serde_json::json;
use test_servers::line::CutLine;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use wire::participant::{Assignment, CheckInReply, UploadReply};

use crate::server::{Device, OTHER, Server, spec};
use crate::{Error, Outcome, processor};

/// Default number of parameters: 64 MiB of them.
const USUAL: usize = 16 << 20;
const PARTICIPANTS: u32 = 3;
/// How often each participant's download is cut, and its upload.
const CUTS: u64 = 5;
const MIB: f64 = (1 << 20) as f64;

/// Three participants fetch the model from a coordinator that leaves background steps to others, and send it an update, all at the same
/// time. Then it sums them and publishes the next version.
pub(crate) async fn run() -> Outcome {
    let asked = std::env::var("TRIBUTARY_LARGE_PARAMETERS").ok().map(|asked| asked.parse()).transpose()?;
    let (parameters, blobs, keys) = (asked.unwrap_or(USUAL), S3Server::start(), tempfile::NamedTempFile::new()?);
    std::fs::write(&keys, format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"))?;
    let (url, endpoint, keys_at) =
        (format!("s3://{BUCKET}/models"), blobs.endpoint(), keys.path().display().to_string());
    let mut settings = vec![
        ("TRIBUTARY_BLOBS_URL", url.as_str()),
        ("TRIBUTARY_BLOBS_ENDPOINT", &endpoint),
        ("TRIBUTARY_BLOBS_CREDENTIALS_FILE", &keys_at),
        ("TRIBUTARY_HTTP_MASKED_INPUT_MAX_BYTES", "8589934592"),
    ];
    let server = Server::start_with(&settings)?;
    let mut task = spec(parameters, PARTICIPANTS, 1);
    (task["rounds"]["collect_deadline_ms"], task["rounds"]["aggregate_deadline_ms"]) =
        (json!(7_200_000), json!(7_200_000));
    task["secure_aggregation"] = json!({ "enabled": false });
    start_from(&server, parameters, &mut task)?;
    let devices = server.enroll_many(PARTICIPANTS).await?;
    for device in &devices {
        device.check_in(0).await?;
    }
    let mut assigned = Vec::new();
    for (device, seed) in devices.into_iter().zip(1..) {
        let work = *place(&device).await?;
        assigned.push(Participant { device, work, body: update(parameters, seed) });
    }
    settings.push(("TRIBUTARY_WORK_ENABLED", "false"));
    let server = server.restart_with(&settings)?;
    let (idle, own) = (server.memory("VmRSS")?, std::process::id());
    processor::forget_peak(own)?;
    let (own_before, start) = (processor::memory(own, "VmRSS")?, Instant::now());
    let runs = assigned.into_iter().map(|participant| {
        let (address, ca_pem) = (server.url("").trim_start_matches("https://").to_owned(), server.ca_pem().to_owned());
        tokio::spawn(async move { participant.take_part(&address, &ca_pem, CUTS).await })
    });
    let (mut moved, mut sent) = (0, 0);
    for run in runs.collect::<Vec<_>>() {
        let (bytes, carried) = run.await??;
        (moved, sent) = (moved + bytes, sent + carried);
    }
    let (peak, seconds) = (server.memory("VmHWM")?, start.elapsed().as_secs_f64());
    let own_grew = (processor::memory(own, "VmHWM")? - own_before) / MIB;
    println!(
        "large: a model of {parameters} parameters, {:.0} MiB, {PARTICIPANTS} participants at once, each way cut {CUTS} times, blobs on S3",
        (parameters * 4) as f64 / MIB
    );
    println!(
        "  moved in {seconds:.0} s: the coordinator {:.1} MiB idle, peak {:.1} MiB: {:.1} MiB above idle (goal: 256)",
        idle / MIB,
        peak / MIB,
        (peak - idle) / MIB
    );
    println!("  the participants, beside the updates they hold, and the S3 server: {own_grew:.1} MiB together");
    println!("  {:.3} times its bytes were sent, both ways (goal: 1.1)", sent as f64 / moved as f64);
    settings.pop();
    let (server, start) = (server.restart_with(&settings)?, Instant::now());
    while server.rounds().await?[0]["state"] != "COMPLETED" {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let peak = (server.memory("VmHWM")? - idle) / MIB;
    let seconds = start.elapsed().as_secs_f64();
    println!("  summed and published in {seconds:.0} s: the coordinator's peak {peak:.1} MiB above idle");
    Ok(())
}

/// Creates the task by `tributary task create`, with a file as its initial model, over a line that is cut.
fn start_from(server: &Server, parameters: usize, task: &mut serde_json::Value) -> Outcome {
    let (folder, bytes) = (tempfile::tempdir()?, parameters as u64 * 4);
    let named = |name: &str| folder.path().join(name);
    write_model(&named("initial.safetensors"), bytes)?;
    task["model"]["initial"] = "initial.safetensors".into();
    std::fs::write(named("task.toml"), toml::to_string(task)?)?;
    std::fs::write(named("ca.pem"), server.ca_pem())?;
    let cuts_at = (1..=CUTS).map(|cut| cut * bytes / (CUTS + 1)).collect();
    let address = server.url("").trim_start_matches("https://").replace("localhost", "127.0.0.1");
    let line = CutLine::before(vec![address], cuts_at, Vec::new());
    let (idle, start) = (server.memory("VmRSS")?, Instant::now());
    server.forget_peak()?;
    let ran = Command::new(crate::server::program())
        .args(["task", "create"])
        .arg(named("task.toml"))
        .env("TRIBUTARY_SERVER", format!("https://localhost:{}", line.port()))
        .env("TRIBUTARY_CA", named("ca.pem"))
        .env("TRIBUTARY_TOKEN", server.token())
        .output()?;
    if !ran.status.success() || line.cuts_left_up() > 0 {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
    }
    println!(
        "large: an initial model of {:.0} MiB, its upload cut {CUTS} times, in {:.0} s: the coordinator {:.1} MiB above idle (goal: 64), {:.3} times its bytes",
        bytes as f64 / MIB,
        start.elapsed().as_secs_f64(),
        (server.memory("VmHWM")? - idle) / MIB,
        line.up() as f64 / bytes as f64
    );
    Ok(())
}

/// A model file with one tensor of so many bytes, all zero.
fn write_model(path: &Path, bytes: u64) -> Outcome {
    let header = json!({ "w": { "dtype": "F32", "shape": [bytes / 4], "data_offsets": [0, bytes] } }).to_string();
    let mut file = std::fs::File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    Ok(file.set_len(8 + header.len() as u64 + bytes)?)
}

async fn place(device: &Device) -> Outcome<Box<Assignment>> {
    let end = Instant::now() + Duration::from_secs(600);
    while Instant::now() < end {
        if let CheckInReply::Assigned(work) = device.check_in(20_000).await? {
            return Ok(work);
        }
    }
    Err("the round did not open".into())
}

/// A device with a place in the round, and the update it will send.
struct Participant {
    device: Device,
    work: Assignment,
    body: Bytes,
}

impl Participant {
    /// Returns the bytes of model and update, and those that came over the line.
    async fn take_part(self, address: &str, ca_pem: &str, cuts: u64) -> Outcome<(u64, u64)> {
        let Self { device, work, body } = self;
        let (every, mut failures) = (work.base.bytes / (CUTS + 1), 0);
        let through = |line: &CutLine| -> Outcome<HttpsTransport> {
            let transport = HttpsTransport::new(&format!("https://localhost:{}", line.port()), ca_pem)?;
            transport.identify(&device.identity)?;
            Ok(transport)
        };
        let address = address.replace("localhost", "127.0.0.1");
        let cuts_at = || (1..=cuts).map(|cut| cut * every).collect();
        let line = CutLine::before(vec![address.clone()], Vec::new(), cuts_at());
        let (transport, folder) = (through(&line)?, tempfile::tempdir()?);
        let mut download = Download::in_file(folder.path(), &work.base)?;
        while let Err(error) = transport.fetch_model(work.task, &work.base, &mut download).await {
            again(&mut failures, cuts, error.into())?;
        }
        assert!(download.bytes() == work.base.bytes && line.cuts_left_down() == 0);
        drop(folder);
        let down = line.up() + line.down();

        let line = CutLine::before(vec![address], cuts_at(), Vec::new());
        let transport = through(&line)?;
        let tree = Arc::new(PartTree::of(&body));
        let (place, participant) = (work.attempt_key(), device.participant);
        loop {
            let manifest = Manifest { place, participant, tree: Arc::clone(&tree), signed: None, below: None };
            let Response::Manifested(reply) = transport.send(&Request::Manifest(manifest)).await else {
                return Err(OTHER.into());
            };
            match reply {
                Ok(UploadReply::Accepted(_)) => break,
                Ok(UploadReply::Missing { parts }) => {
                    for number in parts {
                        let start = number as usize * PART_BYTES;
                        let body = body.slice(start..body.len().min(start + PART_BYTES));
                        let part = Part { place, participant, number, body };
                        if let Response::PartStored(Err(error)) = transport.send(&Request::Part(part)).await {
                            again(&mut failures, cuts, error.into())?;
                            break;
                        }
                    }
                }
                Err(error) => again(&mut failures, cuts, error.into())?,
            }
        }
        assert_eq!(line.cuts_left_up(), 0);
        Ok((work.base.bytes + body.len() as u64, down + line.up() + line.down()))
    }
}

/// A failure that the line's cuts explain.
fn again(failures: &mut u64, cuts: u64, error: Error) -> Outcome {
    *failures += 1;
    if *failures <= 2 * cuts { Ok(()) } else { Err(error) }
}

/// Words of one or zero, and a weight of one.
fn update(parameters: usize, seed: u32) -> Bytes {
    let mut body = Vec::with_capacity(4 * parameters + 4);
    let mut state = seed;
    for _ in 0..parameters {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        body.extend_from_slice(&(state >> 31).to_le_bytes());
    }
    body.extend_from_slice(&1_u32.to_le_bytes());
    body.into()
}

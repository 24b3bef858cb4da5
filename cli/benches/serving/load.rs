//! Requests over kept connections, with as little work as possible on this side.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Measurements of a server.
pub(crate) struct Figures {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Requests per second of its processor time.
    pub(crate) per_processor_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// A request about one row, its numbers as bytes after the JSON.
fn request(address: &str) -> Vec<u8> {
    let json = r#"{"inputs":[{"name":"input","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}],"outputs":[{"name":"scores","parameters":{"binary_data":true}}]}"#;
    let row: Vec<u8> = (0..784_u16).flat_map(|place| (f32::from(place) / 784.0).to_le_bytes()).collect();
    let mut bytes = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nhost: {address}\r\ninference-header-content-length: {}\r\ncontent-length: {}\r\n\r\n",
        json.len(),
        json.len() + row.len()
    )
    .into_bytes();
    bytes.extend(json.as_bytes());
    bytes.extend(row);
    bytes
}

/// Sends a request, and reads its answer to the end.
async fn ask(stream: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) {
    stream.write_all(request).await.unwrap();
    answer.clear();
    loop {
        assert!(stream.read_buf(answer).await.unwrap() > 0, "the server hung up");
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&answer[..head]).unwrap().to_ascii_lowercase();
        assert!(text.starts_with("http/1.1 200"), "{text}");
        let length = text.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        if answer.len() >= head + 4 + length.parse::<usize>().unwrap() {
            return;
        }
    }
}

/// As many requests as it answers, each connection sending the next when it has an answer.
pub(crate) async fn closed(address: &str, process: u32, connections: usize, seconds: u64) -> Figures {
    let (began, before) = (Instant::now(), processor_time(process));
    let end = began + Duration::from_secs(seconds);
    let all = each(address, connections, move |_| None, end).await;
    let (took, used) = (began.elapsed().as_secs_f64(), processor_time(process) - before);
    let count = all.len() as f64;
    let (p50_ms, p99_ms) = percentiles(all);
    Figures { rate: count / took, per_processor_second: count / used, p50_ms, p99_ms }
}

/// Requests at this rate, for any latency; the time of each counts from when it was due.
pub(crate) async fn open(address: &str, connections: usize, rate: f64, seconds: u64) -> (f64, f64) {
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let due = move |number: usize| Some(began + Duration::from_secs_f64(number as f64 / rate));
    percentiles(each(address, connections, due, end).await)
}

async fn each(
    address: &str,
    connections: usize,
    due: impl Fn(usize) -> Option<Instant> + Copy + Send + 'static,
    end: Instant,
) -> Vec<Duration> {
    let tasks: Vec<_> = (0..connections)
        .map(|connection| {
            let address = address.to_owned();
            tokio::spawn(async move {
                let (request, mut answer, mut took) = (request(&address), Vec::new(), Vec::new());
                let mut stream = TcpStream::connect(&address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                for turn in 0.. {
                    let due = due(connection + turn * connections);
                    if let Some(due) = due {
                        tokio::time::sleep_until(due.into()).await;
                    }
                    let sent = due.unwrap_or_else(Instant::now);
                    if Instant::now() >= end {
                        break;
                    }
                    ask(&mut stream, &request, &mut answer).await;
                    took.push(sent.elapsed());
                }
                took
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

fn percentiles(mut all: Vec<Duration>) -> (f64, f64) {
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() * percent / 100).min(all.len() - 1)].as_secs_f64() * 1e3;
    (at(50), at(99))
}

/// Seconds of processor time of a process, from Linux's `/proc`.
fn processor_time(process: u32) -> f64 {
    let told = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = told.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

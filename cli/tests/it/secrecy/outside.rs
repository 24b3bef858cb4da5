//! Everything that leaves a coordinator: answers, streams, pages, metrics, exports and its log.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use wire::headers::{REQUEST, REQUEST_OF_DASHBOARD};
use wire::route;

use super::participants::Secrets;
use crate::company::client;
use crate::support::Served;

/// A client with full access to a coordinator.
pub(super) struct Outside<'a> {
    served: &'a Served,
    client: Client,
}

impl<'a> Outside<'a> {
    pub(super) fn new(served: &'a Served) -> Self {
        Self { served, client: client(&served.ca).build().unwrap() }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.served.url)
    }

    async fn post(&self, path: &str, body: &Value) -> reqwest::Response {
        let request = self.client.post(self.url(path)).bearer_auth(&self.served.token).json(body);
        // The coordinator sets a cookie only with this header.
        let request = request.header(REQUEST, REQUEST_OF_DASHBOARD);
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
        answer
    }

    pub(super) async fn create(&self, spec: &Value) {
        self.post(route::TASKS, &json!({ "spec": spec })).await;
    }

    /// The value of the cookie that a browser is given.
    pub(super) async fn sign_in(&self) -> String {
        let answer = self.post(route::SIGN_INS, &json!({ "token": self.served.token })).await;
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        cookie.split(['=', ';']).nth(1).unwrap().to_owned()
    }

    /// The answer, with its headers.
    async fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let answer = self.client.get(self.url(path)).bearer_auth(&self.served.token).send().await.unwrap();
        let status = answer.status().as_u16();
        let mut bytes = format!("{:?}", answer.headers()).into_bytes();
        bytes.extend(answer.bytes().await.unwrap());
        (status, bytes)
    }

    /// The events of a stream up to the newest that the log of them has now.
    async fn stream(&self, path: &str, events: usize) -> Vec<u8> {
        let request = self.client.get(self.url(&format!("{path}?after=0"))).bearer_auth(&self.served.token);
        let mut stream = request.send().await.unwrap().error_for_status().unwrap().bytes_stream();
        let mut bytes = Vec::new();
        while bytes.windows(6).filter(|window| window == b"data: ").count() < events {
            bytes.extend(stream.next().await.unwrap().unwrap());
        }
        bytes
    }

    /// Waits until all these tasks' beginnings are in the log of events, and its end is signed.
    async fn signed(&self, tasks: usize) {
        for _ in 0..600 {
            let (_, export) = self.get(route::AUDIT_EXPORT).await;
            if String::from_utf8(export).unwrap().matches("task_created").count() == tasks {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the log of events is not signed");
    }

    /// A token by this name.
    pub(super) async fn create_token(&self, name: &str) {
        self.post(route::OPERATOR_TOKENS, &json!({ "name": name, "role": "viewer" })).await;
    }

    /// How many events a task has, or all have.
    async fn events(&self, task: Option<&str>) -> usize {
        let task = task.map(|task| format!("&task={task}")).unwrap_or_default();
        let (_, answer) = self.get(&format!("{}?limit=500{task}", route::AUDIT)).await;
        String::from_utf8(answer).unwrap().matches("\"position\":").count()
    }

    /// All output, each with its source.
    pub(super) async fn collect(&self, tasks: &[&str], log: &Path, exports: &Path) -> Vec<(String, Vec<u8>)> {
        self.signed(tasks.len()).await;
        let mut places = Vec::new();
        for path in self.paths(tasks).await {
            let (status, bytes) = self.get(&path).await;
            // Of the tasks of this test one has a ledger.
            let is_ledger = path.ends_with("/privacy") || path.ends_with("/privacy/export");
            let has_none = is_ledger && !path.contains("/private/") && path != route::PRIVACY;
            assert_eq!(status, if has_none { 404 } else { 200 }, "{path}: {}", String::from_utf8_lossy(&bytes));
            places.push((path, bytes));
        }
        places.push((route::EVENTS.to_owned(), self.stream(route::EVENTS, self.events(None).await).await));
        for task in tasks {
            let path = route::TASK_EVENTS.replace("{task}", task);
            let events = self.events(Some(task)).await;
            places.push((path.clone(), self.stream(&path, events).await));
        }
        places.extend(self.pages().await);
        for format in ["csv", "parquet", "tensorboard", "mlflow"] {
            let out = exports.join(format);
            std::fs::create_dir_all(exports).unwrap();
            let out = if format == "csv" || format == "parquet" { out.join("file") } else { out };
            std::fs::create_dir_all(out.parent().unwrap()).unwrap();
            let args = [&["export"][..], tasks, &["--as", format, "--out", out.to_str().unwrap()]].concat();
            let ran = self.served.operate(&args);
            assert_eq!(ran.code, 0, "{ran}");
            let files = files(&out);
            assert!(!files.is_empty(), "{format}");
            for (name, bytes) in files {
                places.push((format!("export {format} {name}"), [name.as_bytes(), b"\n", &bytes].concat()));
            }
        }
        let log = std::fs::read(log).unwrap();
        let has = |text: &str| log.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("TRACE") && has("h2::") && has("rustls::"), "what it is built from logs, too");
        places.push(("the log".to_owned(), log));
        places
    }

    /// Rejected requests, some about a task that is over: 401, 403, 409, 412 and 422, each with its answer.
    pub(super) async fn refusals(&self, task: &str, secrets: &mut Secrets) -> Vec<(String, Vec<u8>)> {
        let unused = self.served.enrollment_token();
        secrets.add("an enrolment token", unused.as_bytes());
        let made = self.post(route::OPERATOR_TOKENS, &json!({ "name": "looks", "role": "viewer" })).await;
        let made: Value = made.json().await.unwrap();
        let viewer = made["token"].as_str().unwrap();
        secrets.add("an operator's token", viewer.as_bytes());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let pause = route::TASK_PAUSE.replace("{task}", task);
        let promote = route::MODEL_PROMOTE.replace("{task}", task).replace("{version}", "1");
        let mut empty = super::task("empty");
        empty["rounds"]["count"] = json!(0);
        let (admin, nobody) = (self.served.token.as_str(), "");
        let asked = [
            // Secrets, where they do not belong.
            (401_u16, Method::GET, route::TASKS.to_owned(), unused.as_str(), None),
            (401, Method::POST, route::SIGN_INS.to_owned(), nobody, Some(json!({ "token": unused }))),
            (403, Method::POST, route::ENROLL.to_owned(), nobody, Some(json!({ "token": viewer, "csr_pem": csr }))),
            (401, Method::POST, route::CHECK_IN.to_owned(), nobody, Some(json!({}))),
            (403, Method::POST, pause.clone(), viewer, None),
            (409, Method::POST, pause, admin, None),
            (412, Method::POST, promote, admin, None),
            (422, Method::POST, route::TASKS.to_owned(), admin, Some(json!({ "spec": empty }))),
        ];
        let mut places = Vec::new();
        for (status, method, path, token, body) in asked {
            let mut request = self.client.request(method, self.url(&path)).header(REQUEST, REQUEST_OF_DASHBOARD);
            if !token.is_empty() {
                request = request.bearer_auth(token);
            }
            if status == 412 {
                request = request.header("if-match", "\"of another state\"");
            }
            if let Some(body) = body {
                request = request.json(&body);
            }
            let answer = request.send().await.unwrap();
            let (got, mut bytes) = (answer.status().as_u16(), format!("{:?}", answer.headers()).into_bytes());
            bytes.extend(answer.bytes().await.unwrap());
            assert_eq!(got, status, "{path}: {}", String::from_utf8_lossy(&bytes));
            places.push((format!("{path} refused with {status}"), bytes));
        }
        places
    }

    /// Every path of these tasks that accepts a token, from the contract, so that all are covered.
    async fn paths(&self, tasks: &[&str]) -> BTreeSet<String> {
        let document: Value = self.client.get(self.url(route::OPENAPI)).send().await.unwrap().json().await.unwrap();
        let participants: Value = self
            .client
            .get(self.url(route::PARTICIPANTS))
            .bearer_auth(&self.served.token)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let first = participants["items"][0]["id"].as_str().map(str::to_owned);
        // All participants have taken part to the end of two rounds.
        let (rounds, versions): (&[&str], &[&str]) =
            if first.is_some() { (&["1", "2"], &["0", "1", "2"]) } else { (&[], &["0"]) };
        let mut paths = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let Some(get) = item.get("get") else { continue };
            let for_participants = get["security"]
                .as_array()
                .is_some_and(|security| security.iter().all(|way| way.get("certificate").is_some()));
            // Streams do not end; a sign-in is queried with its cookie.
            if for_participants || path.ends_with("/events") || path == route::SIGN_IN {
                continue;
            }
            for task in tasks {
                let path = path.replace("{task}", task);
                if path == route::COMPARE {
                    // A task compared with itself, and its rounds with each other.
                    paths.insert(format!("{path}?task={task}&task={task}"));
                    if let [one, other] = rounds {
                        paths.insert(format!("{path}?round={task}/{one}&round={task}/{other}"));
                    }
                    continue;
                }
                let path = match &first {
                    Some(participant) => path.replace("{participant}", participant),
                    None if path.contains("{participant}") => continue,
                    None => path,
                };
                let each = each_of(&path, "{version}", versions);
                let each = each.iter().flat_map(|path| each_of(path, "{round}", rounds));
                for path in each {
                    assert!(!path.contains('{'), "{path} has a part that this test does not know");
                    paths.insert(path);
                }
            }
        }
        assert!(paths.len() >= 10, "{paths:?}");
        paths
    }

    /// Every file of the dashboard.
    async fn pages(&self) -> Vec<(String, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard");
        let mut pages = Vec::new();
        for (name, _) in files(&folder) {
            let path = if name == "index.html" { "/".to_owned() } else { format!("/assets/-/{name}") };
            let (status, bytes) = self.get(&path).await;
            if status == 200 {
                pages.push((path, bytes));
            }
        }
        assert!(pages.len() > 20, "{}", pages.len());
        pages
    }
}

/// The path once for each value, with the value in place of the placeholder; otherwise the path itself.
fn each_of(path: &str, part: &str, values: &[&str]) -> Vec<String> {
    if !path.contains(part) {
        return vec![path.to_owned()];
    }
    values.iter().map(|value| path.replace(part, value)).collect()
}

/// The files in a folder, or the one, by their names in it.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
    found
}

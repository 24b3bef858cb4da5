//! The operator's side of the REST API: one method per kind of request, problems turned into failures.
//!
//! Paths come from `wire::route`, bodies from `wire`; commands interpret the answers. Answers are bounded in size.

use std::num::NonZeroUsize;
use std::time::Duration;

use forward_proxy::Proxy;
use http::Uri;
use reqwest::header::ETAG;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;
use wire::inspect::{Page, RoundView, TaskSummary, TaskView};
use wire::problem::Problem;
use wire::{RoundState, TaskId, headers, route};

use crate::failure::{Exit, Failure, Outcome, chain};

/// Largest JSON answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// For TCP, TLS, and the tunnel of a proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Request timeout, in addition to a long poll's wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Request timeout of an upload of at most 8 MiB, and of an answer that waits until a model is stored.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// Most names in a message.
const NAMES_MAX: usize = 8;
/// Items of a page.
const PAGE: usize = 100;

/// A header that a write may carry, with its value.
pub type Condition = (&'static str, String);

/// The part of a list to read.
pub struct Part {
    /// Maximum number of entries.
    pub limit: NonZeroUsize,
    /// Continues an earlier list.
    pub cursor: Option<String>,
}

/// An operator's client of a coordinator. Holds a token: never printed.
#[derive(Clone)]
pub struct Server {
    base: Url,
    /// The same as `base`.
    uri: Uri,
    client: reqwest::Client,
    proxy: Proxy,
    token: String,
}

/// A view with its entity tag, which `--if-match` takes, if the coordinator sends one.
pub struct Tagged<T> {
    /// The view, as the coordinator returned it.
    pub view: T,
    /// Its entity tag; `None` if the coordinator sends none.
    pub etag: Option<String>,
}

/// The certificates of an authority's PEM text: at least one.
pub fn authorities(pem: &[u8]) -> Outcome<Vec<reqwest::Certificate>> {
    let none = "the CA file holds no certificate in PEM";
    let found = reqwest::Certificate::from_pem_bundle(pem).map_err(Failure::because(Exit::Configuration, none))?;
    if found.is_empty() {
        return Err(Failure::new(Exit::Configuration, none));
    }
    Ok(found)
}

impl Server {
    /// Makes a client from the authority's PEM text; nothing is sent yet.
    pub fn with_ca(base: Url, ca_pem: Option<&[u8]>, token: String, proxy: &Proxy) -> Outcome<Self> {
        if base.scheme() != "https" || base.host().is_none() {
            return Err(Failure::new(
                Exit::Usage,
                format!("`{base}` is no URL of a coordinator; it begins with https://"),
            ));
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("tributary/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .https_only(true)
            .proxy(proxy.for_reqwest())
            .redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = ca_pem {
            builder = builder.tls_certs_only(authorities(pem)?);
        }
        let uri: Uri = base.as_str().parse().map_err(Failure::because(Exit::Usage, "the URL of the coordinator"))?;
        proxy.towards(&uri).map_err(|error| Failure::new(Exit::Configuration, error))?;
        let client = builder.build().map_err(Failure::because(Exit::Configuration, "cannot set up TLS"))?;
        Ok(Self { base, uri, client, proxy: proxy.clone(), token })
    }

    /// The same coordinator with another token.
    pub fn bearing(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// `GET` of a JSON body.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> Outcome<T> {
        read_json(self.send(self.request(Method::GET, path, query).timeout(TIMEOUT)).await?).await
    }

    /// The same, with its entity tag.
    pub async fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Outcome<Tagged<T>> {
        read_tagged(self.send(self.request(Method::GET, path, &[]).timeout(TIMEOUT)).await?).await
    }

    /// `POST` of a JSON body, answered by one.
    pub async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        condition: Option<Condition>,
    ) -> Outcome<T> {
        Ok(self.post_tagged(path, body, condition).await?.view)
    }

    /// The same, with the entity tag of the answer.
    pub async fn post_tagged<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        condition: Option<Condition>,
    ) -> Outcome<Tagged<T>> {
        let request = self.request(Method::POST, path, &[]).timeout(TIMEOUT).json(body);
        read_tagged(self.send(under(request, condition)).await?).await
    }

    /// `POST` of a JSON body with a query, answered by one.
    pub async fn post_with<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        body: &B,
    ) -> Outcome<T> {
        read_json(self.send(self.request(Method::POST, path, query).timeout(TIMEOUT).json(body)).await?).await
    }

    /// `PUT` of a JSON body, whose answer (if any) does not matter.
    pub async fn put<B: Serialize>(&self, path: &str, body: &B) -> Outcome {
        self.send(self.request(Method::PUT, path, &[]).timeout(TIMEOUT).json(body)).await.map(|_| ())
    }

    /// `PUT` of a JSON body, answered by one once a model is stored.
    pub async fn put_model<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Outcome<T> {
        read_json(self.send(self.request(Method::PUT, path, &[]).timeout(UPLOAD_TIMEOUT).json(body)).await?).await
    }

    /// `PUT` of bytes, whose answer (if any) does not matter.
    pub async fn put_bytes(&self, path: &str, bytes: Vec<u8>) -> Outcome {
        let request = self.request(Method::PUT, path, &[]).timeout(UPLOAD_TIMEOUT);
        self.send(request.header("content-type", headers::MEDIA_OCTETS).body(bytes)).await.map(|_| ())
    }

    /// Sends `DELETE` and ignores a successful answer's body.
    pub async fn delete(&self, path: &str) -> Outcome {
        self.send(self.request(Method::DELETE, path, &[]).timeout(TIMEOUT)).await.map(|_| ())
    }

    /// `POST` without a body, whose answer (if any) does not matter.
    pub async fn act(&self, path: &str) -> Outcome {
        self.act_with(path, &[]).await
    }

    /// The same with a query.
    pub async fn act_with(&self, path: &str, query: &[(&str, String)]) -> Outcome {
        self.send(self.request(Method::POST, path, query).timeout(TIMEOUT)).await.map(|_| ())
    }

    /// A request whose answer is read as it comes, from byte `from` on if it still has this entity tag.
    pub async fn download(&self, path: &str, from: u64, etag: Option<&str>) -> Outcome<Response> {
        let mut request = self.request(Method::GET, path, &[]).header("accept", headers::MEDIA_SAFETENSORS);
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
            if let Some(etag) = etag {
                request = request.header("if-range", etag);
            }
        }
        self.send(request).await
    }

    /// A request whose answer is read as it comes, from its beginning.
    pub async fn stream(&self, path: &str) -> Outcome<Response> {
        self.send(self.request(Method::GET, path, &[])).await
    }

    /// The items of a list, newest first as the coordinator gives them, at most `most`.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, most: usize) -> Outcome<Vec<T>> {
        self.list_where(path, &[], most).await
    }

    /// The same, narrowed down by a query.
    pub async fn list_where<T: DeserializeOwned>(
        &self,
        path: &str,
        narrow: &[(&str, String)],
        most: usize,
    ) -> Outcome<Vec<T>> {
        Ok(self.pages(path, narrow, None, most).await?.items)
    }

    /// The requested part of a list, and the cursor of the next one.
    pub async fn part<T: DeserializeOwned>(
        &self,
        path: &str,
        narrow: &[(&str, String)],
        part: impl Into<Part>,
    ) -> Outcome<Page<T>> {
        let Part { limit, cursor } = part.into();
        self.pages(path, narrow, cursor, limit.get()).await
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        narrow: &[(&str, String)],
        mut cursor: Option<String>,
        most: usize,
    ) -> Outcome<Page<T>> {
        let mut items: Vec<T> = Vec::new();
        loop {
            // No more than is wanted: the cursor is that of what follows.
            let limit = most.saturating_sub(items.len()).clamp(1, PAGE);
            let mut query = narrow.to_vec();
            query.push(("limit", limit.to_string()));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: Page<T> = self.get(path, &query).await?;
            let is_empty = page.items.is_empty();
            items.extend(page.items);
            match page.next_cursor {
                Some(next) if items.len() < most && !is_empty => cursor = Some(next),
                next_cursor => return Ok(Page { items, next_cursor }),
            }
        }
    }

    /// The id of a task given by id or name; among several with the same name, the one that is not over, or the
    /// newest.
    pub async fn task(&self, id_or_name: &str) -> Outcome<TaskId> {
        if let Ok(id) = id_or_name.parse::<TaskId>() {
            return Ok(id);
        }
        let tasks: Vec<TaskSummary> = self.list(route::TASKS, usize::MAX).await?;
        let named = || tasks.iter().filter(|task| task.name == id_or_name);
        let running = |task: &&TaskSummary| !task.status.is_terminal();
        named().find(running).or_else(|| named().next()).map(|task| task.id).ok_or_else(|| {
            let mut names: Vec<_> = tasks.iter().map(|task| task.name.as_str()).collect();
            names.dedup();
            let there_are = match names.as_slice() {
                [] => "there is none yet: `tributary task create` makes one".to_owned(),
                [one] => format!("there is {one}"),
                few if few.len() <= NAMES_MAX => format!("there are {}", few.join(", ")),
                many => format!("there are {}, … (`tributary task list`)", many[..NAMES_MAX].join(", ")),
            };
            Failure::new(Exit::NotFound, format!("no task is called `{id_or_name}`; {there_are}"))
        })
    }

    /// Reads a task by its id.
    pub async fn task_view(&self, id: TaskId) -> Outcome<TaskView> {
        let path = route::fill(route::TASK, &[&id]);
        self.get(&path, &[]).await
    }

    /// Waits up to `wait` for a round to leave the state `after`; `None` if there is no such round yet.
    pub async fn watch_round(
        &self,
        task: TaskId,
        number: u32,
        after: Option<RoundState>,
        wait: Duration,
    ) -> Outcome<Option<RoundView>> {
        let mut query = vec![("wait_ms", wait.as_millis().to_string())];
        if let Some(state) = after {
            query.push(("after_state", state.to_string()));
        }
        let request = self.request(Method::GET, &route::fill(route::ROUND, &[&task, &number]), &query);
        match self.send(request.timeout(TIMEOUT + wait)).await {
            Ok(response) => read_json(response).await.map(Some),
            Err(failure) if failure.exit == Exit::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, String)]) -> RequestBuilder {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(None);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.client.request(method, url).bearer_auth(&self.token).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
    }

    async fn send(&self, request: RequestBuilder) -> Outcome<Response> {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.unreachable(error.without_url()).await),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = read_bounded(response).await?;
        Err(refusal(status, &body))
    }

    /// A failure of the connection, without the secrets in the request.
    async fn unreachable(&self, error: reqwest::Error) -> Failure {
        if error.is_builder() {
            return Failure::caused(
                Exit::Usage,
                "the request cannot be made (is what was given as token, key or ETag plain text?)",
                &error,
            );
        }
        let base = &self.base;
        if let Some(failed) = self.proxy.blame(&error, &self.uri, CONNECT_TIMEOUT).await {
            return Failure::new(Exit::Connection, format!("{base}: {}", failed.report()));
        }
        let advice = client_sdk::transport::advice(&error).map(|advice| format!("; {advice}")).unwrap_or_default();
        Failure::new(Exit::Connection, format!("{base}: {}{advice}", chain(&error)))
    }
}

/// Adds the condition to a request, if there is one.
fn under(request: RequestBuilder, condition: Option<Condition>) -> RequestBuilder {
    match condition {
        Some((name, value)) => request.header(name, value),
        None => request,
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return problem.into();
    }
    let words: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let detail = format!("this does not look like a coordinator's answer: {words:?}");
    Failure::from(Problem::without_details(status, Some(detail)))
}

async fn read_tagged<T: DeserializeOwned>(response: Response) -> Outcome<Tagged<T>> {
    let etag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    Ok(Tagged { view: read_json(response).await?, etag })
}

async fn read_json<T: DeserializeOwned>(response: Response) -> Outcome<T> {
    let body = read_bounded(response).await?;
    serde_json::from_slice(&body)
        .map_err(Failure::because(Exit::Connection, "this is not the answer of a coordinator that this version knows"))
}

async fn read_bounded(mut response: Response) -> Outcome<Vec<u8>> {
    let mut body = Vec::new();
    let cut = Failure::because(Exit::Connection, "the answer was cut off");
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER_BYTES => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(Failure::new(Exit::Connection, "the answer is larger than 64 MiB")),
            Err(error) => return Err(cut(error.without_url())),
        }
    }
}

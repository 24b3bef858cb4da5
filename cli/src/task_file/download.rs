//! A task file from the web.

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use task_spec::TaskSpec;
use url::{Host, Url};

use super::{MAX_BYTES, read_text, wrong};
use crate::failure::{Exit, Failure, Outcome, chain};
use crate::server::{authorities, read_ca};

/// Time for a task file to arrive.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Downloads and reads a task file. Plain HTTP is accepted from this machine alone: a page on the way could change the task.
///
/// # Errors
/// The file cannot be fetched ([`Exit::Connection`]), or is no task.
pub(crate) async fn download(address: &str, ca: Option<&Path>) -> Outcome<TaskSpec> {
    let named = Path::new(address);
    let url = Url::parse(address);
    let url = url.map_err(|error| Failure::new(Exit::Usage, format!("--task {address}: {error}")))?;
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() != "https" && !is_here {
        return Err(Failure::new(Exit::Usage, format!("--task {address}: the URL must begin with https://")));
    }
    let mut builder =
        reqwest::Client::builder().timeout(TIMEOUT).redirect(Policy::none()).https_only(url.scheme() == "https");
    if let Some(ca) = ca {
        builder = builder.tls_certs_only(authorities(&read_ca(ca)?)?);
    }
    let client = builder.build().map_err(Failure::because(Exit::Configuration, "cannot set up TLS"))?;
    let failed = |error: reqwest::Error| {
        Failure::new(Exit::Connection, format!("cannot fetch {address}: {}", chain(&error.without_url())))
    };
    let mut response = client.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_BYTES {
            return Err(wrong(named, format!("has more than {MAX_BYTES} bytes, the most of a task file")));
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong(named, "is not UTF-8"))?;
    read_text(named, &text)
}

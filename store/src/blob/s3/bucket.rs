//! A bucket: connection, requests, and the meaning of its errors.

use std::error::Error;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use forward_proxy::Proxy;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::uri::InvalidUri;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{ClientOptions, HttpClient, HttpConnector as _, HttpError, HttpRequestBody};
use object_store::path::Path;
use object_store::{BackoffConfig, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, RetryConfig};

use super::client::{Watch, Watched};
use crate::error::{Result, StoreError};

/// An S3-compatible store of blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Config {
    pub bucket: String,
    /// Common prefix of the keys of all blobs, without slashes at its ends; may be empty.
    pub prefix: String,
    /// `https://HOST[:PORT]`; `None` for Amazon's of the region.
    pub endpoint: Option<String>,
    pub region: String,
    /// Whether the bucket is named in the host instead of the path. An `endpoint` then has the bucket's name in it.
    pub virtual_host: bool,
    pub credentials: S3Credentials,
    /// A folder for uploads under way, and for blobs that were fetched and verified. Emptied by the first process that
    /// opens it.
    pub cache: PathBuf,
    /// Upper bound of verified blobs in the folder.
    pub cache_bytes: u64,
    /// Upper bound of one request, each of which moves 8 MiB at most; it is repeated a few times.
    pub timeout: Duration,
}

/// Where the credentials of an S3 store are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum S3Credentials {
    /// The usual `AWS_*` variables, or credentials that this machine gets from its host.
    Environment,
    /// A file with `aws_access_key_id = …`, `aws_secret_access_key = …`, and perhaps `aws_session_token = …`.
    File(PathBuf),
}

/// Bytes of one request at most.
pub(super) const PIECE: u64 = 8 << 20;
/// Pieces of one blob that are on their way at once.
const PIECES_AT_ONCE: usize = 2;
/// Repetitions of a request that failed for a reason that may pass.
pub(super) const RETRIES: usize = 4;

/// A bucket and the prefix of our keys in it.
pub(super) struct Bucket {
    pub(super) client: AmazonS3,
    prefix: String,
    place: String,
    /// The client that sends the requests.
    asks: HttpClient,
    clock: Arc<dyn Clock>,
    watch: Arc<Watch>,
}

impl Bucket {
    /// Connects, and tries whether blobs can be listed, stored and removed.
    pub(super) async fn open(config: &S3Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let bucket = Self::connect(config, clock, RETRIES)?;
        bucket.probe().await?;
        Ok(bucket)
    }

    /// A client that repeats a request at most `retries` times. Connecting is lazy: the first call sends the first
    /// request.
    pub(super) fn connect(config: &S3Config, clock: Arc<dyn Clock>, retries: usize) -> Result<Self> {
        // The process has one TLS provider; an earlier caller installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let watch = Arc::new(Watch::default());
        let at = config.endpoint.as_deref().unwrap_or("Amazon S3");
        let place = format!("bucket {} at {at}", config.bucket);
        let endpoint = config.endpoint.as_deref().unwrap_or("https://amazonaws.com").parse();
        let endpoint = endpoint.map_err(|error: InvalidUri| away(&place, &error.to_string()))?;
        Proxy::default().towards(&endpoint).map_err(|error| away(&place, &error.to_string()))?;
        let connector = Watched { watch: Arc::clone(&watch), timeout: config.timeout, plain: is_plain(config) };
        let asks = connector.connect(&client_options(config));
        let client = builder(config, retries)?.with_http_connector(connector).build();
        let wrong = |error| away(&place, &told(&error));
        let (client, asks) = (client.map_err(wrong)?, asks.map_err(wrong)?);
        Ok(Self { client, prefix: config.prefix.clone(), place, asks, clock, watch })
    }

    /// The answer to a question whose URL is signed.
    pub(super) async fn ask(&self, url: &str) -> Result<(http::StatusCode, String)> {
        let request = http::Request::get(url).body(HttpRequestBody::empty()).map_err(StoreError::fault)?;
        let away = |error: HttpError| away(&self.place, &format!("it cannot be reached ({error})"));
        let (head, body) = self.asks.execute(request).await.map_err(away)?.into_parts();
        let body = body.bytes().await.map_err(away)?;
        Ok((head.status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// An error of this bucket's type or behaviour.
    pub(super) fn unusable(&self, why: &str) -> StoreError {
        StoreError::fault(format!("{}: {why}", self.place))
    }

    /// Age of an object, by the server's clock: it dated both the object and the server's last answer. Uses the local
    /// clock if the server's answers are undated.
    pub(super) fn age(&self, object: &ObjectMeta) -> Duration {
        let now = self.watch.server_time().unwrap_or_else(|| self.clock.now());
        now.since(Timestamp(object.last_modified.timestamp_millis()))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The key of a blob, the same as its path below the folder of a disk.
    pub(super) fn key(&self, digest: Digest) -> Path {
        let name = digest.to_string();
        Path::from_iter(self.folder().parts().map(|part| part.as_ref().to_owned()).chain([name[..2].to_owned(), name]))
    }

    pub(super) fn folder(&self) -> Path {
        Path::from(self.prefix.as_str())
    }

    async fn probe(&self) -> Result<()> {
        let folder = self.folder();
        let listed = self.client.list_with_delimiter(Some(&folder)).await;
        listed.map_err(|error| self.explain(&error))?;
        let probe = folder.join("probe");
        self.client.put(&probe, Bytes::from_static(b"tributary").into()).await.map_err(|error| self.explain(&error))?;
        self.client.delete(&probe).await.map_err(|error| self.explain(&error))
    }

    /// The object of a blob; `None` if it is missing.
    pub(super) async fn head(&self, digest: Digest) -> Result<Option<ObjectMeta>> {
        match self.client.head(&self.key(digest)).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => self.look_again(digest).await,
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Looks up the object with a GET. The answer to a HEAD has an empty body, so it cannot name the missing thing.
    async fn look_again(&self, digest: Digest) -> Result<Option<ObjectMeta>> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        match self.client.get_opts(&self.key(digest), options).await {
            Ok(found) => Ok(Some(found.meta)),
            Err(error) if says_absent(&error) => Ok(None),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// The first bytes of a blob, `most` of them or all.
    pub(super) async fn first(&self, digest: Digest, most: u64) -> Result<(Bytes, ObjectMeta)> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..most)), ..GetOptions::default() };
        let error = match self.client.get_opts(&self.key(digest), options).await {
            Ok(found) => {
                let meta = found.meta.clone();
                let bytes = found.bytes().await.map_err(|error| self.explain(&error))?;
                return Ok((bytes, meta));
            }
            Err(error) if says_absent(&error) => return Err(StoreError::MissingBlob(digest)),
            Err(error) => error,
        };
        // The server rejects an empty range.
        match self.head(digest).await {
            Ok(Some(meta)) if meta.size == 0 => Ok((Bytes::new(), meta)),
            Ok(_) | Err(_) => Err(self.explain(&error)),
        }
    }

    /// A part of a blob.
    pub(super) async fn range(&self, digest: Digest, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.client.get_range(&self.key(digest), range).await.map_err(|error| self.lost(digest, &error))
    }

    /// The rest of a blob of `size` bytes after its first `from`, in order.
    pub(super) fn rest(&self, digest: Digest, from: u64, size: u64) -> impl Stream<Item = Result<Bytes>> + Send + '_ {
        let starts = (from..size).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX));
        stream::iter(starts)
            .map(move |start| self.range(digest, start..size.min(start + PIECE)))
            .buffered(PIECES_AT_ONCE)
    }

    /// All blobs with their ages.
    pub(super) async fn list(&self) -> Result<Vec<(Digest, Duration)>> {
        let mut objects = self.client.list(Some(&self.folder()));
        let mut found = Vec::new();
        while let Some(object) = objects.try_next().await.map_err(|error| self.explain(&error))? {
            // Ignores objects that are not named like a blob.
            if let Some(digest) = object.location.filename().and_then(|name| name.parse().ok()) {
                found.push((digest, object));
            }
        }
        // The responses contained the server's time.
        Ok(found.into_iter().map(|(digest, object)| (digest, self.age(&object))).collect())
    }

    /// A lost blob, if the response to a GET means that.
    fn lost(&self, digest: Digest, error: &object_store::Error) -> StoreError {
        if says_absent(error) { StoreError::MissingBlob(digest) } else { self.explain(error) }
    }

    /// The remedy for a failed request, in one line.
    pub(super) fn explain(&self, error: &object_store::Error) -> StoreError {
        let said = told(error);
        let is = |codes: &[&str]| codes.iter().any(|code| said.contains(code));
        if is(&["QuotaExceeded", "InsufficientStorage", "StorageFull", "507 "]) {
            return StoreError::Full;
        }
        let advice = if is(&["NoSuchBucket"]) {
            "there is no such bucket: create it, or correct the bucket in the URL"
        } else if is(&["InvalidAccessKeyId", "SignatureDoesNotMatch", "NotSignedUp", "InvalidToken", "ExpiredToken"]) {
            "these credentials are not accepted: correct blobs.credentials_file, or AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY"
        } else if is(&["169.254."]) {
            "there are no credentials: set blobs.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        } else if is(&["RequestTimeTooSkewed"]) {
            "the clocks differ by more than 15 minutes: correct this machine's"
        } else if is(&["redirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint", "PermanentRedirect"]) {
            "the bucket is in another region: correct blobs.region or blobs.endpoint"
        } else if matches!(
            error,
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
        ) {
            "these credentials may not do this: they need to list the bucket, and to read, write and delete its objects"
        } else if is(&["the proxy http"]) {
            "it cannot be reached through the proxy"
        } else if is(&["error sending request", "timed out", "connect"]) {
            "it cannot be reached: is blobs.endpoint right, and does the server run?"
        } else {
            "it refuses a request"
        };
        away(&self.place, &format!("{advice} ({said})"))
    }
}

/// Whether a response means that the object is missing, as opposed to the bucket. A router without a reachable server also
/// responds with 404.
pub(super) fn says_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && told(error).contains("NoSuchKey")
}

/// Whether the connection closed before the request was sent. object_store repeats other failures of connections.
pub(super) fn is_unsent(error: &object_store::Error) -> bool {
    told(error).contains("connection was not ready")
}

pub(super) fn other_bytes(digest: Digest) -> StoreError {
    StoreError::corrupt(format!("the object of blob {digest} holds other bytes"))
}

fn away(place: &str, why: &str) -> StoreError {
    StoreError::BlobsAway(format!("{place}: {}", why.replace('\n', " ")))
}

/// An error with its causes, each said once.
fn told(error: &object_store::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_said = cause.to_string();
        if !said.contains(&cause_said) {
            said = format!("{said}: {cause_said}");
        }
        next = cause.source();
    }
    said
}

fn client_options(config: &S3Config) -> ClientOptions {
    ClientOptions::new().with_allow_http(is_plain(config)).with_timeout(config.timeout)
}

fn is_plain(config: &S3Config) -> bool {
    config.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn builder(config: &S3Config, retries: usize) -> Result<AmazonS3Builder> {
    let builder = match &config.credentials {
        S3Credentials::Environment => AmazonS3Builder::from_env(),
        S3Credentials::File(path) => with_keys(path)?,
    };
    let backoff = BackoffConfig { init_backoff: Duration::from_millis(100), ..BackoffConfig::default() };
    let retry = RetryConfig { max_retries: retries, retry_timeout: config.timeout, backoff };
    let builder = builder
        .with_bucket_name(&config.bucket)
        .with_region(&config.region)
        .with_virtual_hosted_style_request(config.virtual_host)
        .with_client_options(client_options(config))
        .with_retry(retry)
        // Not every store knows requests that delete many objects.
        .with_disable_bulk_delete(true);
    Ok(match &config.endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    })
}

fn with_keys(path: &FilePath) -> Result<AmazonS3Builder> {
    let wrong = |why: &dyn fmt::Display| StoreError::fault(format!("credentials file {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let value = |wanted: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == wanted).map(|(_, value)| value)
    };
    let required = |key: &str| value(key).ok_or_else(|| wrong(&format!("it has no line `{key} = …`")));
    let builder = AmazonS3Builder::new()
        .with_access_key_id(required("aws_access_key_id")?)
        .with_secret_access_key(required("aws_secret_access_key")?);
    Ok(match value("aws_session_token") {
        Some(token) => builder.with_token(token),
        None => builder,
    })
}

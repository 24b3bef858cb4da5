//! `[blobs]`: storage of models and masked inputs.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::{Blobs, S3Config, S3Credentials};

use super::require::require;

/// Timeout of a request for a small object: participants wait for some of them.
const APART_TIMEOUT: Duration = Duration::from_secs(5);

/// Storage of models and masked inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlobsConfig {
    /// `file:FOLDER`, `s3://BUCKET[/PREFIX]`, or `memory:` for storage only in the process.
    pub url: String,
    /// Further copies of all blobs, each in the form of `url`. Deviating settings of an S3 store are appended:
    /// `s3://BUCKET/PREFIX?endpoint=URL&region=REGION&credentials_file=FILE&virtual_host=true`.
    pub replicas: Vec<String>,
    /// `https://HOST[:PORT]` of an S3 store other than Amazon's.
    pub endpoint: Option<String>,
    pub region: String,
    /// Whether the bucket is part of the host, as in `https://BUCKET.HOST`; the endpoint is then this host.
    pub virtual_host: bool,
    /// A file with `aws_access_key_id = …` and `aws_secret_access_key = …`; by default, the variables `AWS_*` or the machine's host provide
    /// the credentials.
    pub credentials_file: Option<PathBuf>,
    /// A local folder for uploads to an S3 store in progress and for models fetched from it.
    pub cache: PathBuf,
    /// Maximum bytes of fetched models in it.
    pub cache_max_bytes: u64,
    /// Timeout of one request to an S3 store; each moves at most 8 MiB.
    pub request_timeout_ms: u64,
}

impl Default for BlobsConfig {
    fn default() -> Self {
        Self {
            url: "file:tributary-data/blobs".to_owned(),
            replicas: Vec::new(),
            endpoint: None,
            region: "us-east-1".to_owned(),
            virtual_host: false,
            credentials_file: None,
            cache: "tributary-data/cache".into(),
            cache_max_bytes: 4 << 30,
            request_timeout_ms: 60_000,
        }
    }
}

impl BlobsConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if let Err(problem) = self.store() {
            problems.push(problem);
        }
        require(problems, self.request_timeout_ms >= 100, "blobs.request_timeout_ms: must be at least 100");
        let all: Vec<_> = std::iter::once(&self.url).chain(&self.replicas).collect();
        let repeated = all.iter().enumerate().any(|(index, url)| all[..index].contains(url));
        require(problems, !repeated, "blobs.replicas: two copies in one place are one copy");
    }

    /// The blob store, with all of its copies.
    ///
    /// # Errors
    /// The invalid key with its valid values; missing credentials.
    pub(crate) fn store(&self) -> Result<Blobs, String> {
        let primary = self.place("blobs.url", &self.url)?;
        if self.replicas.is_empty() {
            return Ok(primary);
        }
        let others = self.replicas.iter().map(|url| self.place("blobs.replicas", url)).collect::<Result<_, _>>()?;
        Ok(Blobs::Replicated { primary: Box::new(primary), others })
    }

    fn place(&self, key: &str, url: &str) -> Result<Blobs, String> {
        if let Some(path) = url.strip_prefix("file:").map(|path| path.strip_prefix("//").unwrap_or(path))
            && !path.is_empty()
        {
            return Ok(Blobs::Disk(path.into()));
        }
        match url.strip_prefix("s3://") {
            Some(rest) => self.s3(key, rest).map(Blobs::S3),
            None if url == "memory:" => Ok(Blobs::Memory),
            None => Err(format!("{key}: this build knows `file:FOLDER`, `s3://BUCKET/PREFIX` and `memory:`")),
        }
    }

    /// The location of `identity.seal_url`, with the settings of this section or its own.
    ///
    /// # Errors
    /// The reason why it is invalid, for example an overlap with the blobs.
    pub(crate) fn apart(&self, url: &str) -> Result<S3Config, String> {
        const KEY: &str = "identity.seal_url";
        let rest = url.strip_prefix("s3://").ok_or_else(|| format!("{KEY}: this build knows `s3://BUCKET/PREFIX`"))?;
        let apart = self.s3(KEY, rest)?;
        let blobs = std::iter::once(&self.url).chain(&self.replicas).filter_map(|url| url.strip_prefix("s3://"));
        for blobs in blobs.filter_map(|rest| self.s3("", rest).ok()) {
            let is_same_bucket = (&blobs.bucket, &blobs.endpoint) == (&apart.bucket, &apart.endpoint);
            if is_same_bucket && (is_within(&apart.prefix, &blobs.prefix) || is_within(&blobs.prefix, &apart.prefix)) {
                return Err(format!(
                    "{KEY}: must not be where blobs are, nor within: those are copied to backups, where keys of releases must never \
                     be; give it a bucket of its own"
                ));
            }
        }
        let timeout = apart.timeout.min(APART_TIMEOUT);
        Ok(S3Config { timeout, ..apart })
    }

    fn s3(&self, key: &str, url: &str) -> Result<S3Config, String> {
        let (path, settings) = url.split_once('?').unwrap_or((url, ""));
        let mut own = self.clone();
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("endpoint", value)) => own.endpoint = Some(value.to_owned()),
                Some(("region", value)) => value.clone_into(&mut own.region),
                Some(("credentials_file", value)) => own.credentials_file = Some(value.into()),
                Some(("virtual_host", value @ ("true" | "false"))) => own.virtual_host = value == "true",
                _ => {
                    return Err(format!(
                        "{key}: after `?` may follow endpoint=, region=, credentials_file= and virtual_host=true, with `&` between"
                    ));
                }
            }
        }
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        if bucket.is_empty() || !bucket.chars().all(is_name) {
            return Err(format!(
                "{key}: after `s3://` comes the name of a bucket, in lower case, then `/` and a prefix"
            ));
        }
        if let Some(endpoint) = &own.endpoint
            && (!["https://", "http://"].iter().any(|scheme| endpoint.starts_with(scheme)) || endpoint.contains('@'))
        {
            return Err("blobs.endpoint: must be `https://HOST[:PORT]`, without credentials".to_owned());
        }
        Ok(S3Config {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
            endpoint: own.endpoint,
            region: own.region,
            virtual_host: own.virtual_host,
            credentials: own.credentials_file.map_or(S3Credentials::Environment, S3Credentials::File),
            cache: own.cache,
            cache_bytes: own.cache_max_bytes,
            timeout: Duration::from_millis(own.request_timeout_ms),
        })
    }

    /// Removes credentials from the URLs.
    pub(super) fn redact(&mut self) {
        let urls = std::iter::once(&mut self.url).chain(&mut self.replicas).chain(&mut self.endpoint);
        for url in urls {
            redact_url(url);
        }
    }
}

/// Removes credentials from a URL.
pub(super) fn redact_url(url: &mut String) {
    if let Some((before, after)) = url.rsplit_once('@') {
        let start = before.rfind("://").map_or(0, |at| at + 3);
        *url = format!("{}***@{after}", &before[..start]);
    }
}

/// Whether keys with the prefix `inner` are among those with the prefix `outer`.
fn is_within(inner: &str, outer: &str) -> bool {
    outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> BlobsConfig {
        BlobsConfig { url: url.to_owned(), ..BlobsConfig::default() }
    }

    fn problem(config: &BlobsConfig) -> String {
        let mut problems = Vec::new();
        config.check(&mut problems);
        problems.concat()
    }

    #[test]
    fn each_place_is_known_by_its_scheme() {
        assert_eq!(config("memory:").store().unwrap(), Blobs::Memory);
        for url in ["file:/a/b", "file:///a/b"] {
            assert_eq!(config(url).store().unwrap(), Blobs::Disk("/a/b".into()));
        }
        for (url, bucket, prefix) in [("s3://b", "b", ""), ("s3://my.b-1/", "my.b-1", ""), ("s3://b/c/d/", "b", "c/d")]
        {
            let Blobs::S3(s3) = config(url).store().unwrap() else { panic!("{url}") };
            assert_eq!((s3.bucket.as_str(), s3.prefix.as_str(), s3.endpoint), (bucket, prefix, None));
            assert_eq!(s3.credentials, S3Credentials::Environment);
        }
        for url in
            ["", "file:", "s3:", "s3://", "s3:///a", "s3://Bucket", "gs://b", "/a/b", "s3://b?endpoint", "s3://b?key=x"]
        {
            assert!(problem(&config(url)).contains("blobs.url"), "{url}");
        }
    }

    #[test]
    fn a_copy_has_the_settings_of_the_section_or_its_own() {
        let config = BlobsConfig {
            replicas: vec![
                "s3://b".to_owned(),
                "s3://b/c?endpoint=http://h:9000&region=x&credentials_file=/k&virtual_host=true".to_owned(),
            ],
            endpoint: Some("https://e".to_owned()),
            ..config("file:a")
        };
        assert_eq!(problem(&config), "");
        let Blobs::Replicated { primary, others } = config.store().unwrap() else { panic!() };
        assert_eq!(*primary, Blobs::Disk("a".into()));
        let [Blobs::S3(same), Blobs::S3(own)] = others.as_slice() else { panic!() };
        assert_eq!((same.endpoint.as_deref(), same.virtual_host), (Some("https://e"), false));
        assert_eq!(
            (own.endpoint.as_deref(), own.region.as_str(), own.virtual_host),
            (Some("http://h:9000"), "x", true)
        );
        assert_eq!(own.credentials, S3Credentials::File("/k".into()));
        let twice = BlobsConfig { replicas: vec!["file:a".to_owned()], ..config };
        assert!(problem(&twice).contains("one copy"));
    }

    #[test]
    fn what_must_be_in_no_backup_is_not_where_blobs_are() {
        let config = BlobsConfig {
            replicas: vec!["s3://c/copy?endpoint=http://h:9000".to_owned()],
            request_timeout_ms: 60_000,
            ..config("s3://b/models")
        };
        for url in ["s3://keys", "s3://b/keys", "s3://b/models2", "s3://c/copy", "s3://keys/a/b?credentials_file=/k"] {
            assert_eq!(config.apart(url).unwrap().timeout, Duration::from_secs(5), "{url}");
        }
        let own = config.apart("s3://keys?credentials_file=/k").unwrap();
        assert_eq!(own.credentials, S3Credentials::File("/k".into()));
        for url in ["s3://b", "s3://b/models", "s3://b/models/keys", "s3://c/copy/x?endpoint=http://h:9000"] {
            assert!(config.apart(url).unwrap_err().contains("backups"), "{url}");
        }
        for url in ["", "file:/a", "s3://", "s3://B"] {
            assert!(config.apart(url).unwrap_err().starts_with("identity.seal_url: "), "{url}");
        }
    }

    #[test]
    fn credentials_have_no_place_in_urls_and_are_not_shown() {
        let secret = "https://user:geheim@host";
        let wrong = BlobsConfig { endpoint: Some(secret.to_owned()), ..config("s3://b") };
        assert!(problem(&wrong).contains("blobs.endpoint") && !problem(&wrong).contains("geheim"));
        let mut shown = BlobsConfig { replicas: vec![format!("s3://b?endpoint={secret}")], ..wrong };
        shown.redact();
        assert_eq!(shown.endpoint.as_deref(), Some("https://***@host"));
        assert_eq!(shown.replicas, ["s3://b?endpoint=https://***@host"]);
        let plain = BlobsConfig { endpoint: Some("host:9000".to_owned()), ..config("s3://b") };
        assert!(problem(&plain).contains("blobs.endpoint"));
    }
}

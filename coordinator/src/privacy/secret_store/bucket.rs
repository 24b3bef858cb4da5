//! Secret store in a prefix of a bucket, for coordinators without a common folder.
//!
//! Files are never cached: a file destroyed by one process is gone for all. A replacement is conditional on the version read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use federation::time::Clock;
use futures_util::future::try_join_all;
use store::{KeepsVersions, Result, S3Config, SmallObjects, StoreError};
use tokio::runtime::Handle;

use super::folder::Bytes;
use crate::random::Random;

/// Maximum number of attempts to replace a file under contention.
const LOOKS: u32 = 20;

/// The bucket of all kinds of small files. Clones share it.
#[derive(Clone)]
pub(crate) struct Bucket {
    objects: Arc<SmallObjects>,
    url: String,
    /// Whether the bucket kept deleted versions at the last check.
    keeps_versions: Arc<AtomicBool>,
    /// Runs requests for blocking threads.
    runtime: Handle,
}

impl Bucket {
    /// Connects, and checks that the bucket supports conditional requests and keeps no deleted versions.
    ///
    /// # Errors
    /// `BlobsAway`; `Fault` with the missing capability.
    pub(crate) async fn open(config: &S3Config, url: &str, clock: Arc<dyn Clock>, random: &Random) -> Result<Self> {
        let probe = format!("probe-{}", hex::encode(random.bytes::<16>()));
        let objects = SmallObjects::open(config, clock, &probe).await?;
        let keeps_versions = objects.keeps_versions().await?;
        if let KeepsVersions::Unknown(why) = &keeps_versions {
            tracing::warn!(
                url,
                "{url} does not say whether it keeps versions of what is deleted, or locks objects ({why}): see that it does not, \
                 or keys of releases outlive their releases there"
            );
        }
        let bucket = Self {
            objects: Arc::new(objects),
            url: url.to_owned(),
            keeps_versions: Arc::new((keeps_versions == KeepsVersions::Yes).into()),
            runtime: Handle::current(),
        };
        bucket.destroys()?;
        Ok(bucket)
    }

    fn destroys(&self) -> Result<()> {
        if !self.keeps_versions.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(StoreError::BlobsAway(format!(
            "{}: this bucket keeps, or kept, versions of what is overwritten and deleted, so nothing can be destroyed there: use a \
             bucket that never did, without object lock",
            self.url
        )))
    }

    /// Checks versioning again, since an administrator of the bucket may enable it at any time.
    async fn look_for_versions(&self) {
        let keeps = match self.objects.keeps_versions().await {
            Ok(KeepsVersions::Yes) => true,
            Ok(KeepsVersions::No) => false,
            Ok(KeepsVersions::Unknown(_)) | Err(_) => return,
        };
        if self.keeps_versions.swap(keeps, Ordering::SeqCst) == keeps {
            return;
        }
        match self.destroys() {
            Err(error) => {
                tracing::error!(%error, "no more keys are made or destroyed, and secure and private rounds wait: {error}")
            }
            Ok(()) => tracing::info!(url = self.url, "{} keeps no versions any more", self.url),
        }
    }

    /// The files of one kind.
    pub(crate) fn folder(&self, name: &'static str) -> BucketFolder {
        BucketFolder { bucket: self.clone(), name }
    }

    fn wait<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(request)
    }
}

/// Files of one kind in a bucket.
pub(crate) struct BucketFolder {
    bucket: Bucket,
    name: &'static str,
}

impl BucketFolder {
    pub(super) fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let found = self.bucket.wait(self.bucket.objects.read(&self.key(name)))?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    pub(super) fn look_for_versions(&self) {
        self.bucket.runtime.block_on(self.bucket.look_for_versions());
    }

    pub(super) fn destroys(&self) -> Result<()> {
        self.bucket.destroys()
    }

    pub(super) fn create(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.bucket.destroys()?;
        self.bucket.wait(self.bucket.objects.create(&self.key(name), bytes))
    }

    pub(super) fn replace(
        &self,
        name: &str,
        mut judge: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        let (key, objects) = (self.key(name), &self.bucket.objects);
        for _ in 0..LOOKS {
            let present = self.bucket.wait(objects.read(&key))?;
            let (bytes, seen) = present.unzip();
            let Some(next) = judge(bytes.as_ref().map(|bytes| bytes.as_slice()))? else { return Ok(()) };
            if self.bucket.wait(objects.replace(&key, &next, seen.as_ref()))? {
                return Ok(());
            }
        }
        Err(StoreError::BlobsAway(format!("{}: others replace it again and again", self.place(name))))
    }

    pub(super) fn destroy(&self, names: &[String]) -> Result<()> {
        if !names.is_empty() {
            self.bucket.destroys()?;
        }
        let keys: Vec<_> = names.iter().map(|name| self.key(name)).collect();
        self.bucket.wait(try_join_all(keys.iter().map(|key| self.bucket.objects.destroy(key)))).map(drop)
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        self.bucket.wait(self.bucket.objects.names(self.name))
    }

    pub(super) fn place(&self, name: &str) -> String {
        format!("{}/{}", self.bucket.url.trim_end_matches('/'), self.key(name))
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use federation::time::{MockClock, Timestamp};
    use store::S3Credentials;
    use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

    use super::*;

    async fn open(server: &S3Server, folder: &std::path::Path, seed: u64) -> Bucket {
        let credentials = folder.join("s3");
        let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(&credentials, keys).unwrap();
        let config = S3Config {
            bucket: BUCKET.to_owned(),
            prefix: "apart".to_owned(),
            endpoint: Some(server.endpoint()),
            region: "us-east-1".to_owned(),
            virtual_host: false,
            credentials: S3Credentials::File(credentials),
            cache: folder.join("cache"),
            cache_bytes: 0,
            timeout: Duration::from_secs(2),
        };
        let clock = Arc::new(MockClock::new(Timestamp(1_000_000_000_000)));
        Bucket::open(&config, "s3://blobs/apart", clock, &Random::from_seed(seed)).await.unwrap()
    }

    fn number(bytes: Option<&[u8]>) -> u64 {
        bytes.map_or(0, |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_several_that_replace_a_file_none_takes_it_back() {
        let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
        let mut writers = Vec::new();
        for seed in 0..2 {
            let bucket = open(&server, folder.path(), seed).await;
            writers.push(tokio::task::spawn_blocking(move || {
                let files = bucket.folder("ledgers");
                for next in (1..=10).map(|step| 2 * step + seed) {
                    files
                        .replace("end", |present| Ok((number(present) < next).then(|| next.to_string().into_bytes())))
                        .unwrap();
                    assert!(number(files.read("end").unwrap().as_ref().map(|bytes| bytes.as_slice())) >= next);
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(std::fs::read(server.object("apart/ledgers/end")).unwrap(), b"21");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_that_others_replace_in_between_is_looked_at_again() {
        let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
        let bucket = open(&server, folder.path(), 1).await;
        let other = bucket.folder("ledgers");
        tokio::task::spawn_blocking(move || {
            let (files, mut seen) = (bucket.folder("ledgers"), Vec::new());
            files
                .replace("end", |present| {
                    seen.push(number(present));
                    if seen.len() == 1 {
                        other.replace("end", |_| Ok(Some(b"7".to_vec())))?;
                    }
                    Ok((number(present) < 5).then(|| b"5".to_vec()))
                })
                .unwrap();
            assert_eq!(seen, [0, 7]);
            assert_eq!(number(files.read("end").unwrap().as_ref().map(|bytes| bytes.as_slice())), 7);
            assert_eq!(files.place("end"), "s3://blobs/apart/ledgers/end");
        })
        .await
        .unwrap();
    }
}

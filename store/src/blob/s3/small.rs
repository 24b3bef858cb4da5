//! Small objects that several processes share: created once, replaced on condition, and destroyed for good.
//!
//! Blobs are immutable, so a request whose answer was lost is simply repeated. Mutable objects need conditions. A
//! destroyed object must stay destroyed, so its creation is sent once: a delayed duplicate would recreate it.

use std::sync::Arc;

use bytes::Bytes;
use federation::time::Clock;
use http::Method;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer as _};
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use zeroize::Zeroizing;

use super::bucket::{Bucket, RETRIES, S3Config, says_absent};
use crate::error::Result;

/// How long the signed question about versions is good for.
const QUESTION_LASTS: std::time::Duration = std::time::Duration::from_secs(60);
/// How often an object is deleted that is there again: others may overwrite it with zeros at the same time.
const DESTROYED_AT_ONCE: u32 = 3;
/// The version of an object in an unversioned bucket.
const NO_VERSION: &str = "null";

/// Small objects below a prefix of a bucket.
pub struct SmallObjects {
    bucket: Bucket,
    /// The same bucket, with a client that sends each request once: a late copy must not recreate an object.
    once: Bucket,
}

/// Whether a bucket keeps deleted objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepsVersions {
    No,
    /// It does, or did, which cannot be undone.
    Yes,
    /// It does not answer, for this reason.
    Unknown(String),
}

/// Identifies a state of an object.
#[derive(Clone, Debug)]
pub struct Seen(UpdateVersion);

impl SmallObjects {
    /// Connects, and tries whether objects can be listed, created, replaced on condition and removed. The cache of `config` is not
    /// used.
    ///
    /// # Errors
    /// `BlobsAway` if the bucket cannot be reached; `Fault` if it refuses something, or does not keep to conditions.
    pub async fn open(config: &S3Config, clock: Arc<dyn Clock>, probe: &str) -> Result<Self> {
        let bucket = Bucket::connect(config, Arc::clone(&clock), RETRIES)?;
        let objects = Self { bucket, once: Bucket::connect(config, clock, 0)? };
        objects.names("").await?;
        objects.try_conditions(probe).await?;
        Ok(objects)
    }

    /// Whether the bucket supports conditions: it must reject the second creation of an object, and the replacement of
    /// a missing one.
    async fn try_conditions(&self, probe: &str) -> Result<()> {
        let ignored = |condition: &str| {
            let why = format!(
                "it ignores the condition {condition} of a request, without which coordinators cannot share this: it \
                 must support conditional writes"
            );
            Err(self.bucket.unusable(&why))
        };
        self.create(probe, b"1").await?;
        match self
            .once
            .client
            .put_opts(&self.path(probe), Bytes::from_static(b"2").into(), PutMode::Create.into())
            .await
        {
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(self.bucket.explain(&error)),
            Ok(_) => return ignored("If-None-Match"),
        }
        let Some((_, first)) = self.read(probe).await? else {
            return Err(self.bucket.unusable("an object that was stored is not there"));
        };
        if !self.replace(probe, b"3", Some(&first)).await? {
            return Err(self.bucket.unusable("an object is not the one that was just stored"));
        }
        if self.replace(probe, b"4", Some(&first)).await? {
            return ignored("If-Match");
        }
        self.destroy(probe).await
    }

    /// Checks whether the bucket keeps deleted objects. Object locks need versions, so this covers them.
    ///
    /// # Errors
    /// `BlobsAway`.
    pub async fn keeps_versions(&self) -> Result<KeepsVersions> {
        let options = SignedUrlOptions::new().with_query([("versioning", "")]);
        let client = &self.bucket.client;
        let url = client.signed_url_opts(Method::GET, &Path::default(), QUESTION_LASTS, &options).await;
        let url = url.map_err(|error| self.bucket.explain(&error))?;
        let (status, body) = self.bucket.ask(url.as_str()).await?;
        if !status.is_success() {
            let code = between(&body, "<Code>", "</Code>").unwrap_or("no reason");
            return Ok(KeepsVersions::Unknown(format!("{} ({code})", status.as_u16())));
        }
        Ok(match between(&body, "<Status>", "</Status>") {
            Some(_) => KeepsVersions::Yes,
            None if body.contains("VersioningConfiguration") => KeepsVersions::No,
            None => KeepsVersions::Unknown("an answer that is none".to_owned()),
        })
    }

    /// The object's bytes and its state; `None` if it is missing.
    ///
    /// # Errors
    /// `BlobsAway`; `Fault`.
    pub async fn read(&self, name: &str) -> Result<Option<(Zeroizing<Vec<u8>>, Seen)>> {
        let found = match self.bucket.client.get(&self.path(name)).await {
            Ok(found) => found,
            // A destroyed key is a permanent failure, so other errors must not look like one.
            Err(error) if says_absent(&error) => return Ok(None),
            Err(error) => return Err(self.bucket.explain(&error)),
        };
        self.keeps_none(found.meta.version.as_deref())?;
        let seen = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: None };
        let bytes = found.bytes().await.map_err(|error| self.bucket.explain(&error))?;
        Ok(Some((Zeroizing::new(bytes.to_vec()), Seen(seen))))
    }

    /// Creates an object by one request, under a name that is new. If the answer is lost, the object is looked up.
    /// After an error its existence is uncertain, and the name must not be used again.
    ///
    /// # Errors
    /// `BlobsAway` if its existence is uncertain; `Fault`, also if the bucket keeps versions of it.
    pub async fn create(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let put = self.once.client.put_opts(&path, payload(bytes), PutMode::Create.into()).await;
        let error = match put {
            Ok(put) => return self.keeps_none(put.version.as_deref()),
            Err(error) => error,
        };
        match self.read(name).await {
            Ok(Some((there, _))) if there.as_slice() == bytes => Ok(()),
            _ => Err(self.bucket.explain(&error)),
        }
    }

    /// Replaces the object that was `seen`, or creates it if `seen` is `None`. Returns false if another object is
    /// there.
    ///
    /// # Errors
    /// `BlobsAway`, after which it may have been replaced all the same; `Fault`.
    pub async fn replace(&self, name: &str, bytes: &[u8], seen: Option<&Seen>) -> Result<bool> {
        let mode = seen.map_or(PutMode::Create, |Seen(seen)| PutMode::Update(seen.clone()));
        let path = self.path(name);
        match self.once.client.put_opts(&path, payload(bytes), PutOptions::from(mode)).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.bucket.explain(&error)),
        }
    }

    /// Overwrites an object with zeros, removes it, and sees that it is gone.
    ///
    /// # Errors
    /// `BlobsAway`; `Fault`, also if it is still there, or kept as a version.
    pub async fn destroy(&self, name: &str) -> Result<()> {
        let (path, client) = (self.path(name), &self.bucket.client);
        for _ in 0..DESTROYED_AT_ONCE {
            let Some((there, _)) = self.read(name).await? else { return Ok(()) };
            let zeros = Bytes::from(vec![0; there.len()]);
            let put = client.put(&path, zeros.into()).await.map_err(|error| self.bucket.explain(&error))?;
            // The overwritten object has become the previous version, which a deletion would only hide.
            self.keeps_none(put.version.as_deref())?;
            match client.delete(&path).await {
                Err(error) if !says_absent(&error) => return Err(self.bucket.explain(&error)),
                _ => {}
            }
        }
        match self.read(name).await? {
            None => Ok(()),
            Some(_) => Err(self.bucket.unusable("an object that was deleted is still there")),
        }
    }

    /// The names of the objects directly below `folder`, without it.
    ///
    /// # Errors
    /// `BlobsAway`; `Fault`.
    pub async fn names(&self, folder: &str) -> Result<Vec<String>> {
        let listed = self.bucket.client.list_with_delimiter(Some(&self.path(folder))).await;
        let objects = listed.map_err(|error| self.bucket.explain(&error))?.objects;
        Ok(objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect())
    }

    fn path(&self, name: &str) -> Path {
        let folder = self.bucket.folder();
        let named = Path::from(name);
        Path::from_iter(folder.parts().chain(named.parts()))
    }

    fn keeps_none(&self, version: Option<&str>) -> Result<()> {
        match version {
            Some(version) if version != NO_VERSION => Err(self.bucket.unusable(
                "it keeps versions of what is overwritten and deleted, so nothing can be destroyed there: use a bucket that never \
                 kept any",
            )),
            _ => Ok(()),
        }
    }
}

/// A body that is zeroed when it is dropped.
fn payload(bytes: &[u8]) -> object_store::PutPayload {
    Bytes::from_owner(Zeroizing::new(bytes.to_vec())).into()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inside, _)| inside)
}

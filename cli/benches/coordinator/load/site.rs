//! Shared parts of a deployment's coordinators: rows, blobs and keys.

use std::path::PathBuf;

use coordinator::random::Random;
use coordinator::seal::Sealer;
use store::{Database, PostgresServer};
use test_servers::postgres::Cluster;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

use super::Load;
use super::crowd::Crowd;
use crate::server::Server;
use crate::{Outcome, processor};

/// A deployment whose participants are enrolled.
pub(crate) struct Site<'a> {
    folder: tempfile::TempDir,
    config: PathBuf,
    /// Where rows are, if a server has them.
    cluster: Option<&'a Cluster>,
    /// Name of the database there.
    database: String,
    /// Where blobs are, if several coordinators share them.
    _blobs: Option<S3Server>,
}

impl<'a> Site<'a> {
    /// One machine: a SQLite file and a folder.
    pub(crate) async fn on_sqlite(load: &Load, crowd: &Crowd) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("coordinator.db");
        let url = format!("sqlite:{}", file.display());
        Self::new(folder, load, crowd, &url, Database::SqliteFile(file), None, None).await
    }

    /// A database of a PostgreSQL server; blobs in a folder, or on an S3 server, which several coordinators can share.
    pub(crate) async fn on_postgres(load: &Load, crowd: &Crowd, cluster: &'a Cluster, on_s3: bool) -> Outcome<Self> {
        let name = cluster.create_database();
        let url = cluster.url(&name);
        let database = Database::Postgres(PostgresServer::parse(&url)?);
        let blobs = on_s3.then(S3Server::start);
        let site = Self::new(tempfile::tempdir()?, load, crowd, &url, database, Some(cluster), blobs).await?;
        Ok(Self { database: name, ..site })
    }

    async fn new(
        folder: tempfile::TempDir,
        load: &Load,
        crowd: &Crowd,
        url: &str,
        database: Database,
        cluster: Option<&'a Cluster>,
        blobs: Option<S3Server>,
    ) -> Outcome<Self> {
        let at = |name: &str| folder.path().join(name);
        crowd.write_authority(&at("ca.pem"), &at("ca-key.pem"))?;
        crowd.write_rows(database).await?;
        // A coordinator refuses to start with a database that has rows, unless it has the key.
        Sealer::open(&at("seal.key"), &Random::from_system()?)?;
        let place = match &blobs {
            None => format!("url = {:?}\n", format!("file:{}", at("blobs").display())),
            Some(server) => {
                let credentials = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
                std::fs::write(at("s3"), credentials)?;
                format!(
                    "url = \"s3://{BUCKET}/models\"\nendpoint = {:?}\ncredentials_file = {:?}\n",
                    server.endpoint(),
                    at("s3")
                )
            }
        };
        // All come from one address, so its limits are raised. There are few strangers, so that the limit on open files
        // leaves more to participants.
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\nconnections_max = {}\nstrangers_max = 500\n\
             strangers_per_address = 500\nevent_streams_per_token = 256\noperator_rate = 1000000\naddress_rate = 1000000\n\
             [database]\nurl = {url:?}\nconnections = {}\n[blobs]\n{place}\
             [identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n",
            load.polling.max(1),
            load.connections,
            at("ca.pem"),
            at("ca-key.pem"),
        );
        let config = at("coordinator.toml");
        std::fs::write(&config, text)?;
        Ok(Self { folder, config, cluster, database: String::new(), _blobs: blobs })
    }

    /// One more coordinator over the same rows and blobs.
    pub(crate) fn serve(&self) -> Outcome<Server> {
        self.serve_with(&[])
    }

    /// With these settings, as the environment names them.
    pub(crate) fn serve_with(&self, settings: &[(&str, &str)]) -> Outcome<Server> {
        let own = tempfile::tempdir_in(self.folder.path())?;
        let cache = own.path().join("cache").display().to_string();
        let settings = [&[("TRIBUTARY_BLOBS_CACHE", cache.as_str())], settings].concat();
        Server::launch(&["--config", &self.config.display().to_string()], &settings, own)
    }

    /// Number of held leases of rounds; 0 with SQLite.
    pub(crate) fn held_leases(&self) -> Outcome<u32> {
        let Some(cluster) = self.cluster else { return Ok(0) };
        let held = "SELECT count(*) FROM lease WHERE name LIKE 'round:%' AND expires_at > acquired_at";
        Ok(cluster.sql(&self.database, held).parse()?)
    }

    /// The log of the database's server; empty with SQLite.
    pub(crate) fn log(&self) -> Outcome<String> {
        self.cluster
            .map_or_else(|| Ok(String::new()), |cluster| Ok(std::fs::read_to_string(cluster.folder().join("log"))?))
    }

    /// Processor time of the database's own processes, in seconds; 0 with SQLite.
    pub(crate) fn database_seconds(&self) -> Outcome<f64> {
        let Some(cluster) = self.cluster else { return Ok(0.0) };
        let told = std::fs::read_to_string(cluster.folder().join("data/postmaster.pid"))?;
        processor::family_seconds(told.lines().next().unwrap().parse()?)
    }
}

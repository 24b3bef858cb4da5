//! Connections to the server: TLS, passwords, and the errors of failed connections.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use store::{Result, Store, StoreError};
use test_servers::postgres::{Cluster, Options, USER};

use super::{config, fresh};

const PASSWORD: &str = "geheim%/@ü";
const ENCODED: &str = "geheim%25%2F%40%C3%BC";

/// A server on 127.0.0.1 that wants TLS and a password, with a certificate for `localhost`; and the authority's.
fn guarded() -> Option<(Cluster, String, String)> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let access =
        "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\nhostssl all all ::1/128 scram-sha-256\n";
    let cluster = Cluster::start(Options {
        tcp: true,
        settings: vec![("ssl".to_owned(), "on".to_owned())],
        files: vec![
            ("server.crt".to_owned(), certificate.pem()),
            ("server.key".to_owned(), key.serialize_pem()),
            ("pg_hba.conf".to_owned(), access.to_owned()),
        ],
        ..Options::default()
    })?;
    cluster.sql("postgres", &format!("ALTER USER {USER} PASSWORD '{PASSWORD}'"));
    let database = cluster.create_database();
    Some((cluster, database, authority.pem()))
}

async fn open(url: &str) -> Result<()> {
    Store::open(config(url)).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_hosts_name_from_a_trusted_authority_is_wanted() {
    let Some((cluster, database, authority)) = guarded() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let ours = file("ours.pem", &authority);
    let stranger = KeyPair::generate().unwrap();
    let theirs = file("theirs.pem", &CertificateParams::default().self_signed(&stranger).unwrap().pem());
    let url = |host: &str, mode: &str, roots: &str| {
        format!("postgres://{USER}:{ENCODED}@{host}:{}/{database}?sslmode={mode}&sslrootcert={roots}", cluster.port())
    };
    open(&url("localhost", "verify-full", &ours)).await.unwrap();
    // Of another name: the certificate is for localhost.
    open(&url("127.0.0.1", "verify-ca", &ours)).await.unwrap();
    for (refused, part) in [
        (url("127.0.0.1", "verify-full", &ours), "not valid for name"),
        (url("localhost", "verify-full", &theirs), "invalid peer certificate"),
        (url("localhost", "disable", &ours), "no pg_hba.conf entry"),
    ] {
        let error = open(&refused).await.unwrap_err();
        let StoreError::NoAccess(told) = &error else { panic!("{error:?}") };
        assert!(told.contains(part), "{refused}: {told}");
        assert!(!told.contains("geheim"), "{told}");
    }
    let error = open(&url("localhost", "verify-full", "/no/such/file")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(told) if told.contains("No such file")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_without_it() {
    let Some((cluster, database, _)) = guarded() else { return };
    let url = |user: &str| format!("postgres://{user}@localhost:{}/{database}?sslmode=require", cluster.port());
    open(&url(&format!("{USER}:{ENCODED}"))).await.unwrap();
    for credentials in [USER, &format!("{USER}:verraten")] {
        let error = open(&url(credentials)).await.unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(matches!(error, StoreError::NoAccess(_)) && told.contains("password authentication failed"), "{told}");
        assert!(!told.contains("verraten"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_told_at_once() {
    let Some((_, database, url)) = fresh() else { return };
    let absent = url.replace(&format!("/{database}"), "/nowhere");
    let error = open(&absent).await.unwrap_err();
    assert!(matches!(&error, StoreError::NoAccess(told) if told.contains("nowhere")), "{error:?}");
    let nobody = url.replace("tributary-pg", "tributary-absent");
    assert!(matches!(open(&nobody).await, Err(StoreError::Unreachable(_))));
}

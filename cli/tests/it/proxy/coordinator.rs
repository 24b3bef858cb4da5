//! A coordinator behind a forward proxy: its identity provider, and its blobs in S3.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use tokio_rustls::TlsAcceptor;

use super::{AUTHORIZATION, Proxy, Response};
use crate::support::{Served, finish, tributary};

/// A provider's keys: one that has signed nothing.
const KEYS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"other","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// A configuration with this end, and the arguments that serve it.
fn configured(folder: &Path, more: &str) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:{}\"\n\
         [identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n{more}",
        at("rows.db"),
        at("ca.pem"),
        at("ca-key.pem"),
    );
    std::fs::write(at("coordinator.toml"), config).unwrap();
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--config", &at("coordinator.toml")]);
    command
}

/// Ends TLS for a name that DNS cannot resolve, before the server at this address. The certificate of its authority is written to `ca`.
fn ends_tls(name: &str, server: String, ca: &Path) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca, params.self_signed(&key).unwrap().pem()).unwrap();
    let (issuer, own) = (Issuer::new(params, key), KeyPair::generate().unwrap());
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&own, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.serialize_der()));
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
    });
    port
}

/// Answers each request with this JSON.
fn answers(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// Whether the coordinator has asked the proxy for this server alone, with its password.
fn assert_asked(proxy: &Proxy, server: &str) {
    let (heads, authorization) = (proxy.heads(), AUTHORIZATION.to_lowercase());
    let is_right =
        |head: &String| head.starts_with(&format!("CONNECT {server} ")) && head.to_lowercase().contains(&authorization);
    assert!(!heads.is_empty() && heads.iter().all(is_right), "{heads:?}");
}

#[test]
fn coordinator_reaches_its_identity_provider_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("id-ca.pem");
    let port = ends_tls("id.site.test", answers(KEYS), &ca);
    let oidc = format!(
        "[blobs]\nurl = \"file:{}\"\n[oidc]\nissuer = \"https://id.site.test/realm\"\njwks_url = \"https://id.site.test/keys\"\n\
         audience = \"tributary\"\nroles = {{ staff = {{ role = \"viewer\" }} }}\nca_certificate_file = {ca:?}\n",
        folder.path().join("blobs").display()
    );
    // `{"alg":"RS256","kid":"k"}`, `{}`, and three bytes in place of a signature.
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AAAA";
    let log = folder.path().join("log");
    for (response, code, logged) in [
        // It has read that the provider has no such key.
        (Response::Tunnel(port), 6, ""),
        (
            Response::Status("403 Forbidden"),
            10,
            "(HTTPS_PROXY) answered 403 Forbidden; its rules have to allow CONNECT",
        ),
        (Response::Endless, 10, "(HTTPS_PROXY) sent no valid HTTP response"),
        (Response::Silence, 10, "(HTTPS_PROXY) gave no tunnel in "),
    ] {
        let proxy = Proxy::start(response);
        let mut command = configured(folder.path(), &oidc);
        command.env("HTTPS_PROXY", proxy.url_with_password());
        command.stderr(std::fs::File::create(&log).unwrap());
        let ca = folder.path().join("ca.pem").display().to_string();
        let served = Served { ca, ..Served::until_in_words(command, "serving") };
        let refused = served.operate_as(token, &["task", "list"]);
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(refused.code == code && log.contains(logged), "{refused}\n{log}");
        assert!(!log.contains("s3cret"), "{log}");
        assert_asked(&proxy, "id.site.test:443");
    }
}

#[test]
fn coordinator_keeps_blobs_in_s3_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let (s3, ca) = (S3Server::start(), folder.path().join("s3-ca.pem"));
    let address = s3.endpoint().trim_start_matches("http://").to_owned();
    let port = ends_tls("s3.site.test", address, &ca);
    let keys = folder.path().join("keys");
    std::fs::write(&keys, format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")).unwrap();
    let blobs = format!(
        "[blobs]\nurl = \"s3://{BUCKET}/a\"\nendpoint = \"https://s3.site.test\"\ncredentials_file = {keys:?}\ncache = {:?}\n",
        folder.path().join("cache")
    );
    let serve = |proxy: &Proxy| {
        let mut command = configured(folder.path(), &blobs);
        command.env("HTTPS_PROXY", proxy.url_with_password()).env("SSL_CERT_FILE", &ca);
        command
    };
    let refused = Proxy::start(Response::Status("407 Proxy Authentication Required"));
    let ran = finish(&mut serve(&refused));
    assert!(
        ran.code != 0 && ran.stderr.contains("answered 407 Proxy Authentication Required; it does not accept"),
        "{ran}"
    );
    assert!(!ran.to_string().contains("s3cret"), "{ran}");

    let proxy = Proxy::start(Response::Tunnel(port));
    let ca = folder.path().join("ca.pem").display().to_string();
    let _served = Served { ca, ..Served::until(serve(&proxy), "serving") };
    assert_asked(&proxy, "s3.site.test:443");
    assert!(!s3.requests().is_empty());
}

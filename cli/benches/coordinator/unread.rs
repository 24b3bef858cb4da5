//! Memory of the coordinator with peers that send requests and leave the answers unread.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::task::JoinHandle;
use wire::route;

use crate::Outcome;
use crate::server::{Device, Server};

const STREAMS: usize = 10_000;
const PARAMETERS: usize = 1_000_000;

pub(crate) async fn run() -> Outcome {
    strangers().await?;
    participants().await
}

/// Strangers that ask for the largest answer they can have.
async fn strangers() -> Outcome {
    let server = Server::start()?;
    let idle = begin(&server)?;
    let deaf = crowd(&server, None, STREAMS.div_ceil(32), 32, route::OPENAPI).await?;
    report(&server, "strangers: GET /openapi.json", idle, deaf).await
}

/// Participants that ask for the model; each from as many connections as it may have.
async fn participants() -> Outcome {
    let server = Server::start()?;
    let devices = server.enroll_many(10).await?;
    server.create_task(PARAMETERS, 100, 1).await?;
    let idle = begin(&server)?;
    let mut all = Crowd::default();
    for device in &devices {
        let crowd = crowd(&server, Some(device), 16, 64, "/v1/tasks/bench/models/0/parameters").await?;
        all.connections.extend(crowd.connections);
        all.streams += crowd.streams;
        all.answers.extend(crowd.answers);
    }
    report(&server, "10 participants: GET …/parameters", idle, all).await
}

fn begin(server: &Server) -> Outcome<f64> {
    server.forget_peak()?;
    server.memory("VmRSS")
}

#[derive(Default)]
struct Crowd {
    connections: Vec<(SendRequest<Bytes>, JoinHandle<()>)>,
    streams: usize,
    answers: Vec<http::Response<h2::RecvStream>>,
}

/// Connections that answer PINGs with a flow-control window of 0.
async fn crowd(
    server: &Server,
    device: Option<&Device>,
    connections: usize,
    each: usize,
    path: &str,
) -> Outcome<Crowd> {
    let mut crowd = Crowd::default();
    for _ in 0..connections {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let (client, connection) = builder.handshake(connect(server, device, "h2").await?).await?;
        let ended = tokio::spawn(async move { drop(connection.await) });
        let mut asked = Vec::new();
        for _ in 0..each {
            let Ok(mut ready) = client.clone().ready().await else { break };
            let request = http::Request::get(server.url(path)).body(())?;
            // The coordinator closes a connection that is over the limit.
            let Ok((answer, _)) = ready.send_request(request, true) else { break };
            asked.push(answer);
        }
        crowd.streams += asked.len();
        crowd.answers.extend(join_all(asked).await.into_iter().filter_map(Result::ok));
        crowd.connections.push((client, ended));
    }
    Ok(crowd)
}

/// A connection over which this protocol is spoken.
pub(crate) async fn connect(
    server: &Server,
    device: Option<&Device>,
    protocol: &str,
) -> Outcome<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes())?)?;
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut tls = match device {
        None => tls.with_no_client_auth(),
        Some(device) => {
            let pem = device.identity.certified.certificate_pem.as_bytes();
            let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
            let key = PrivatePkcs8KeyDer::from(device.identity.key.expose_pkcs8().to_vec());
            tls.with_client_auth_cert(chain, PrivateKeyDer::Pkcs8(key))?
        }
    };
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let address: url::Url = server.url("").parse()?;
    let host = address.host_str().unwrap().to_owned();
    let stream = tokio::net::TcpStream::connect((host.as_str(), address.port().unwrap())).await?;
    Ok(tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(host.try_into()?, stream).await?)
}

async fn report(server: &Server, what: &str, idle: f64, crowd: Crowd) -> Outcome {
    let ok = crowd.answers.iter().filter(|answer| answer.status() == 200).count();
    println!("unread: {what}, {} streams on {} connections", crowd.streams, crowd.connections.len());
    println!("  {} answered, {ok} of them with what was asked for", crowd.answers.len());
    let above = |what: &str| Ok::<_, crate::Error>((server.memory(what)? - idle) / 1e6);
    println!(
        "  {:.1} MB idle, {:+.1} MB now, {:+.1} MB at the peak (limit: +32)",
        idle / 1e6,
        above("VmRSS")?,
        above("VmHWM")?
    );
    tokio::time::sleep(Duration::from_secs(45)).await;
    let open = crowd.connections.iter().filter(|(_, ended)| !ended.is_finished()).count();
    println!("  45 s later {:+.1} MB, {open} connections open", above("VmRSS")?);
    Ok(())
}

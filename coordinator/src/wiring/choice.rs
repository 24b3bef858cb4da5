//! Implementations chosen by the configuration: locations, devices, keys and limits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use aggregation::Aggregator;
use aggregation::device::{DeviceChoice, select};
use federation::device_reason::DeviceReason;
use listener::{ConnectionLimits, Timeouts, read_certified_key};
use ring::hmac;
use store::{Blobs, Database, StoreConfig, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::parts::{Parts, StartError};
use crate::backup::restoring;
use crate::config::{Config, DatabaseConfig, DatabaseError, TracesConfig};
use crate::http::{App, Rate, Rates};
use crate::identity::{Authority, AuthorityError, Members, MembersCa, ServerKey, Signer};
use crate::observe::{Collector, CollectorError, Traces};
use crate::privacy::seal::{SealError, Sealer};
use crate::privacy::secret_store::Bucket;
use crate::process::lock::{LockError, Locks};
use crate::process::open_files;

pub(super) fn store_config(config: &Config, parts: &Parts) -> Result<StoreConfig, DatabaseError> {
    Ok(StoreConfig {
        database: database(&config.database, parts)?,
        // `Config::check` rejected unreadable values.
        blobs: config.blobs.store().unwrap_or(Blobs::Memory),
        connections: config.database.connections,
        clock: Arc::clone(&parts.clock),
    })
}

fn database(config: &DatabaseConfig, parts: &Parts) -> Result<Database, DatabaseError> {
    let place = match config.url.strip_prefix("sqlite:") {
        Some(":memory:") => return Ok(Database::SqliteMemory),
        Some(place) => place,
        None => return Ok(Database::Postgres(config.server()?.with_seed(u64::from_le_bytes(parts.random.bytes())))),
    };
    Ok(Database::SqliteFile(PathBuf::from(place.strip_prefix("//").unwrap_or(place))))
}

/// The store without blobs if other processes may run: on a PostgreSQL database.
pub(super) fn rows_alone(store: StoreConfig) -> StoreConfig {
    match store.database {
        Database::Postgres(_) => StoreConfig { blobs: Blobs::Memory, ..store },
        Database::SqliteFile(_) | Database::SqliteMemory => store,
    }
}

/// Locks a file database and the blob folder against other coordinators.
///
/// # Errors
/// [`LockError`]; also after an incomplete restore.
pub(super) fn locks(store: &StoreConfig, parts: &Parts) -> Result<Locks, LockError> {
    let locks = locks_to_replace(store, parts)?;
    match &store.database {
        Database::SqliteFile(path) if restoring(path).exists() => Err(LockError::HalfRestored(path.clone())),
        Database::SqliteFile(_) | Database::SqliteMemory | Database::Postgres(_) => Ok(locks),
    }
}

/// The same locks for a restore.
pub(super) fn locks_to_replace(store: &StoreConfig, parts: &Parts) -> Result<Locks, LockError> {
    let mut paths = Vec::new();
    match &store.database {
        Database::SqliteFile(path) => {
            let mut path = path.clone();
            path.as_mut_os_string().push(".lock");
            paths.push(path);
        }
        Database::SqliteMemory | Database::Postgres(_) => {}
    }
    paths.extend(store.blobs.folders().map(|folder| folder.join("coordinator.lock")));
    Locks::take(&paths, parts.clock.now())
}

/// The aggregation device and the reason for its choice; `None` in a build without GPU support.
pub(super) fn aggregator(config: &Config) -> Result<(Arc<dyn Aggregator>, Option<DeviceReason>), StartError> {
    let aggregator = selected(config)?.aggregator;
    // Only a GPU has a spare, the processor.
    let because = match aggregator.spare() {
        _ if choice(config)? != DeviceChoice::Auto => Some(DeviceReason::AskedFor),
        Some(_) => Some(DeviceReason::BestPresent),
        None => cfg!(any(feature = "cuda", feature = "wgpu")).then_some(DeviceReason::NoGpu),
    };
    Ok((aggregator, because))
}

fn choice(config: &Config) -> Result<DeviceChoice, StartError> {
    config.aggregation.device.parse::<DeviceChoice>().map_err(|error| device(&error))
}

fn device(error: &dyn std::fmt::Display) -> StartError {
    StartError::Device(error.to_string())
}

pub(super) fn selected(config: &Config) -> Result<aggregation::device::Selected, StartError> {
    let threads = usize::try_from(config.aggregation.threads).unwrap_or(usize::MAX);
    select(choice(config)?, threads).map_err(|error| device(&error))
}

/// The coordinator's own authority, if it issues certificates.
pub(super) fn authority(config: &Config, parts: &Parts) -> Result<Option<Arc<Authority>>, StartError> {
    let (random, now) = (&parts.random, parts.clock.now());
    let identity = &config.identity;
    if !config.needs_authority() {
        if !identity.in_memory() && identity.ca_key_file.exists() {
            let file = identity.ca_key_file.display();
            tracing::warn!("{file} holds the key of an authority that vouches for nobody here any more: remove it");
        }
        return Ok(None);
    }
    let authority = match identity.in_memory() {
        true => Authority::in_memory(random, now)?,
        // With several coordinators, each would create another.
        false if identity.seal_url.is_some() && !identity.ca_key_file.exists() => {
            return Err(AuthorityError::Missing(identity.ca_key_file.clone()).into());
        }
        false => Authority::open(&identity.ca_certificate_file, &identity.ca_key_file, random, now)?,
    };
    Ok(Some(Arc::new(authority)))
}

pub(super) fn members(config: &Config, own: Option<&Arc<Authority>>) -> Result<Members, StartError> {
    let identity = &config.identity;
    match (&identity.members_ca_certificate_file, &identity.signer, own) {
        (Some(file), Some(signer), _) => Ok(Members::Elsewhere(Signer::open(file, signer)?)),
        (Some(file), None, _) => Ok(Members::PreIssued(MembersCa::open(file)?)),
        (None, _, Some(own)) => Ok(Members::Own(Arc::clone(own))),
        (None, _, None) => Err(StartError::Tls("there is no authority that certifies participants".into())),
    }
}

/// The bucket for release keys and ends of privacy ledgers, if configured; connected and checked.
pub(super) async fn bucket_apart(config: &Config, parts: &Parts) -> Result<Option<Bucket>, StoreError> {
    let Some(url) = &config.identity.seal_url else { return Ok(None) };
    let place = config.blobs.apart(url).map_err(StoreError::fault)?;
    let url = url.split('?').next().unwrap_or_default();
    Bucket::open(&place, url, Arc::clone(&parts.clock), &parts.random).await.map(Some)
}

pub(super) fn sealer(config: &Config, parts: &Parts, apart: Option<&Bucket>) -> Result<Sealer, SealError> {
    match (config.identity.seal_key_file(), apart) {
        (Some(path), Some(bucket)) => Sealer::open_beside(&path, bucket, &parts.random),
        (Some(path), None) => Sealer::open(&path, &parts.random),
        (None, _) => Ok(Sealer::in_memory(&parts.random)),
    }
}

/// Starts the traces and their export until `stopped`, if configured.
pub(super) fn traces(
    config: &Config,
    parts: &Parts,
    sealer: &Sealer,
    stopped: CancellationToken,
    tasks: &TaskTracker,
) -> Result<Traces, CollectorError> {
    let TracesConfig { endpoint, sample_ratio, headers, ca_certificate_file } = &config.traces;
    let Some(endpoint) = endpoint else { return Ok(Traces::default()) };
    let headers = headers.as_deref().unwrap_or_default();
    let (service, instance) = ("tributary-coordinator", hex::encode(parts.random.bytes::<8>()));
    let collector = Collector::new(endpoint, headers, ca_certificate_file.as_deref(), service, &instance)?;
    let (queue, sending) = collector.start(stopped);
    tasks.spawn(sending);
    // A derived key, equal in all coordinators with the same sealing key. The label differs from all sealing contexts.
    let key = hmac::Key::new(hmac::HMAC_SHA256, &sealer.mac(b"tributary seal.key traces 1\0", b""));
    Ok(Traces::new(key, *sample_ratio, parts.random.clone(), queue))
}

pub(super) fn server_key(config: &Config, app: &App) -> Result<ServerKey, StartError> {
    let (Some(certificate_file), Some(key_file)) = (&config.http.certificate_file, &config.http.key_file) else {
        let missing = || StartError::Tls("there is no authority that vouches for this server".into());
        let authority = app.authority.as_ref().ok_or_else(missing)?;
        let mut names = config.http.public_names.clone();
        names.extend(own_address(config, config.http.listen).map(|address| address.to_string()));
        return Ok(authority.server_key(&names, &app.random, app.now())?);
    };
    let (chain, key) = read_certified_key(certificate_file, key_file).map_err(|error| StartError::Tls(error.into()))?;
    Ok(ServerKey { chain, key })
}

pub(super) fn rates(config: &Config) -> Rates {
    let rate = |per_second| Rate { per_second, burst_s: config.http.burst_s };
    Rates {
        participant: rate(config.http.participant_rate),
        operator: rate(config.http.operator_rate),
        address: rate(config.http.address_rate),
    }
}

/// Maximum number of operators' connections, and of connections not yet classified.
const OPERATORS_MAX: usize = 256;
const ARRIVING_MAX: usize = 1024;
/// Maximum number of connections to the health listener.
const HEALTH_MAX: usize = 32;

pub(super) fn connection_limits(config: &Config, files: Option<usize>) -> ConnectionLimits {
    let http = &config.http;
    // Participants use either listener: each gets the full limit.
    let listeners = 1 + usize::from(http.signed_listen.is_some());
    let wanted = ConnectionLimits {
        arriving: ARRIVING_MAX,
        operators: OPERATORS_MAX,
        members: count(http.connections_max).saturating_mul(listeners),
        each_member: count(http.connections_per_participant),
        strangers: count(http.strangers_max),
        each_address: count(http.strangers_per_address),
    };
    let fitting = open_files::fit(wanted, files);
    ConnectionLimits { members: fitting.members.div_ceil(listeners), ..fitting }
}

/// Timeouts of every listener.
pub(super) fn timeouts(config: &Config) -> Timeouts {
    let http = &config.http;
    Timeouts {
        header: http.header_timeout(),
        request: http.request_timeout(),
        stranger: http.stranger_lifetime(),
        unread: http.unread_timeout(),
        shutdown: http.shutdown_timeout(),
    }
}

/// Limits of the health listener, open to unauthenticated peers.
pub(super) const HEALTH_CROWDS: ConnectionLimits = ConnectionLimits {
    arriving: HEALTH_MAX,
    operators: 0,
    members: 0,
    each_member: 0,
    strangers: HEALTH_MAX,
    each_address: HEALTH_MAX,
};

pub(super) fn count(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The listening address, if the first public name is a loopback address that does not lead to it. It is then printed, and certified by our
/// own authority.
fn own_address(config: &Config, listen: SocketAddr) -> Option<IpAddr> {
    let first = config.http.public_names.first().map_or("localhost", String::as_str);
    let reached = if first == "localhost" { IpAddr::from(Ipv4Addr::LOCALHOST) } else { first.parse().ok()? };
    let is_public = !reached.is_loopback() || config.http.certificate_file.is_some();
    (!is_public && !listen.ip().is_unspecified() && listen.ip() != reached).then(|| listen.ip())
}

pub(super) fn url(config: &Config, address: SocketAddr) -> String {
    let own = own_address(config, address).map(|address| address.to_string());
    let name = config.http.public_names.first().map_or("localhost", String::as_str);
    let name = own.as_deref().unwrap_or(name);
    match name.parse::<std::net::Ipv6Addr>() {
        Ok(v6) => format!("https://[{v6}]:{}", address.port()),
        Err(_) => format!("https://{name}:{}", address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_url_leads_to_the_address_that_is_listened_on() {
        let printed = |names: &[&str], listen: &str| {
            let mut config = Config::default();
            config.http.public_names = names.iter().map(|&name| name.to_owned()).collect();
            url(&config, listen.parse().unwrap())
        };
        let usual = ["localhost", "127.0.0.1"];
        for (names, listen, expected) in [
            (&usual[..], "127.0.0.1:8443", "https://localhost:8443"),
            (&usual, "[::1]:8443", "https://[::1]:8443"),
            (&usual, "192.0.2.7:8443", "https://192.0.2.7:8443"),
            (&usual, "0.0.0.0:8443", "https://localhost:8443"),
            (&usual, "[::]:8443", "https://localhost:8443"),
            (&["fl.example", "127.0.0.1"], "[::1]:8443", "https://fl.example:8443"),
            (&["::1"], "[::1]:8443", "https://[::1]:8443"),
            (&["192.0.2.7"], "10.0.0.7:8443", "https://192.0.2.7:8443"),
        ] {
            assert_eq!(printed(names, listen), expected, "{names:?} {listen}");
        }
    }

    #[test]
    fn builds_without_gpus_give_no_reason_for_the_cpu() {
        let reason = |device: &str| {
            let mut config = Config::default();
            config.aggregation.device = device.to_owned();
            aggregator(&config).unwrap().1
        };
        assert_eq!(reason("cpu"), Some(DeviceReason::AskedFor));
        let has_gpus = cfg!(any(feature = "cuda", feature = "wgpu"));
        assert_eq!(reason("auto").is_none(), !has_gpus);
    }
}

//! Where a PostgreSQL database is, and how to get in.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;
use zeroize::Zeroizing;

use super::patience::Patience;

/// More than the number of this crate's statements, so that each is prepared once per connection.
const STATEMENTS: usize = 512;
const PORT: u16 = 5432;

/// A PostgreSQL database on a server.
#[derive(Clone)]
pub struct PostgresServer {
    /// A name, an address, or the folder of a socket, which begins with `/`.
    host: String,
    port: u16,
    user: String,
    database: String,
    password: Option<Arc<Zeroizing<String>>>,
    tls: PgSslMode,
    /// Certificates of authorities, in PEM, that are trusted in addition to the system's.
    authorities: Option<PathBuf>,
    /// Seed of the pauses between retries. Processes that share a database need different ones.
    seed: u64,
    patience: Patience,
}

impl PostgresServer {
    /// Reads `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?sslmode=…&sslrootcert=FILE]`; parts are percent-encoded.
    ///
    /// `sslmode` is `verify-full` (the default: TLS with a certificate of this host's name), `verify-ca` (of any name),
    /// `require` (any certificate) or `disable`, the default for a socket's folder and for this machine.
    ///
    /// # Errors
    /// The error, without the password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("{error}; write postgres://USER@HOST/DATABASE"))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(format!("begins with {:?}, not with postgres://", url.scheme()));
        }
        let (host, user) = (decoded(url.host_str().unwrap_or_default())?, decoded(url.username())?);
        let database = decoded(url.path().trim_start_matches('/'))?;
        for (part, name) in [(&host, "HOST"), (&user, "USER"), (&database, "DATABASE")] {
            if part.is_empty() || part.contains('\0') {
                return Err(format!("{name} is missing; write postgres://USER@HOST/DATABASE"));
            }
        }
        let password = url.password().map(decoded).transpose()?.map(|password| Arc::new(Zeroizing::new(password)));
        let here = host.starts_with('/') || matches!(&*host, "localhost" | "127.0.0.1" | "[::1]");
        let mut server = Self {
            host,
            port: url.port().unwrap_or(PORT),
            user,
            database,
            password,
            tls: if here { PgSslMode::Disable } else { PgSslMode::VerifyFull },
            authorities: None,
            seed: 0,
            patience: Patience::USUAL,
        };
        for (key, value) in url.query_pairs() {
            match &*key {
                "sslmode" => server.tls = mode(&value)?,
                "sslrootcert" => server.authorities = Some(PathBuf::from(&*value)),
                _ => return Err(format!("has the parameter {key:?}; only sslmode and sslrootcert are known")),
            }
        }
        Ok(server)
    }

    /// Whether the URL had a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    #[must_use]
    pub fn with_password(self, password: String) -> Self {
        Self { password: Some(Arc::new(Zeroizing::new(password))), ..self }
    }

    /// Draws the pauses between retries from this seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Divides the timeouts for a silent server by this number, so that tests are fast.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn impatient(self, times: u32) -> Self {
        Self { patience: self.patience.divided_by(times), ..self }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// sqlx keeps a copy of the password for new connections, which it does not overwrite.
    pub(super) fn options(&self) -> PgConnectOptions {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let options = PgConnectOptions::new_without_pgpass()
            .host(host)
            .port(self.port)
            .username(&self.user)
            .database(&self.database)
            // An empty password by default, so that sqlx does not take one from elsewhere.
            .password(self.password.as_deref().map_or("", |password| password.as_str()))
            .ssl_mode(self.tls)
            .application_name("tributary")
            .statement_cache_capacity(STATEMENTS);
        match &self.authorities {
            Some(file) => options.ssl_root_cert(file),
            None => options,
        }
    }
}

/// Without the password.
impl fmt::Display for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "database {:?} on {}:{} as {:?}", self.database, self.host, self.port, self.user)
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for PostgresServer {
    fn eq(&self, other: &Self) -> bool {
        let place =
            |it: &Self| (it.host.clone(), it.port, it.user.clone(), it.database.clone(), it.authorities.clone());
        place(self) == place(other) && self.password == other.password && self.seed == other.seed
    }
}

impl Eq for PostgresServer {}

fn decoded(part: &str) -> Result<String, String> {
    let decoded = percent_decode_str(part).decode_utf8().map_err(|_| "has a part that is not UTF-8".to_owned())?;
    Ok(decoded.into_owned())
}

fn mode(name: &str) -> Result<PgSslMode, String> {
    match name {
        "disable" => Ok(PgSslMode::Disable),
        "require" => Ok(PgSslMode::Require),
        "verify-ca" => Ok(PgSslMode::VerifyCa),
        "verify-full" => Ok(PgSslMode::VerifyFull),
        _ => Err(format!(
            "has sslmode={name:?}; write verify-full, verify-ca, require or disable (what somebody on the way could turn \
             off is not offered)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_defaults() {
        let server = PostgresServer::parse("postgres://ann:p%40ss@db.example/rows").unwrap();
        assert_eq!((&*server.host, server.port, &*server.user, &*server.database), ("db.example", 5432, "ann", "rows"));
        assert_eq!(server.password.as_deref().map(|password| password.as_str()), Some("p@ss"));
        assert!(matches!(server.tls, PgSslMode::VerifyFull));
        let told = format!("{server} {server:?}");
        assert!(told.contains("db.example") && !told.contains("p@ss") && !told.contains("p%40ss"), "{told}");

        let server = PostgresServer::parse("postgresql://ann@%2Frun%2Fpg:5433/rows").unwrap();
        assert_eq!((&*server.host, server.port, server.has_password()), ("/run/pg", 5433, false));
        for near in ["postgres://a@localhost/r", "postgres://a@127.0.0.1/r", "postgres://a@[::1]/r"] {
            assert!(matches!(PostgresServer::parse(near).unwrap().tls, PgSslMode::Disable), "{near}");
        }
        let server = PostgresServer::parse("postgres://a@localhost/r?sslmode=verify-ca&sslrootcert=/a/b.pem").unwrap();
        assert!(matches!(server.tls, PgSslMode::VerifyCa));
        assert_eq!(server.authorities, Some(PathBuf::from("/a/b.pem")));
    }

    #[test]
    fn what_cannot_work_is_told_without_the_password() {
        for (url, part) in [
            ("postgres://u:geheim@h", "DATABASE"),
            ("postgres://:geheim@h/d", "USER"),
            ("postgres://u:geheim@h/d?sslmode=prefer", "verify-full"),
            ("postgres://u:geheim@h/d?sslmode=allow", "verify-full"),
            ("postgres://u:geheim@h/d?password=geheim", "sslrootcert"),
            ("postgres://u:geheim@h:99999/d", "port"),
            ("mysql://u:geheim@h/d", "mysql"),
        ] {
            let told = PostgresServer::parse(url).unwrap_err();
            assert!(told.contains(part) && !told.contains("geheim"), "{url}: {told}");
        }
    }
}

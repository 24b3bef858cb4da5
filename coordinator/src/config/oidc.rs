//! `[oidc]`: an identity provider for operators.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use wire::admin::Role;

use super::require::require;

task_spec::named_enum! {
    /// Signing algorithms of an identity provider. Excludes algorithms with shared secrets, and unsigned tokens.
    pub enum SigningAlgorithm: "signing algorithm" {
        Rs256 = "RS256",
        Ps256 = "PS256",
        Es256 = "ES256",
        EdDsa = "EdDSA",
    }
}

/// An identity provider for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    /// The provider, as in the `iss` of its tokens.
    pub issuer: String,
    /// Required value in the `aud` of a token.
    pub audience: String,
    /// URL of the provider's keys. Default: from `ISSUER/.well-known/openid-configuration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// Certificate, in PEM, of the only trusted authority for these servers. Default: the machine's trusted authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_certificate_file: Option<PathBuf>,
    /// The deciding claim: its name, or a JSON pointer into the claims such as `/realm_access/roles`. It is a text, or a list of texts.
    #[serde(default = "roles")]
    pub claim: String,
    /// Signing algorithms that are accepted in a token's header.
    #[serde(default = "every_algorithm")]
    pub algorithms: Vec<SigningAlgorithm>,
    /// Tolerated difference between the provider's clock and ours.
    #[serde(default = "minute")]
    pub leeway_ms: u64,
    /// Maximum validity of a token after it was issued, independent of its own expiry.
    #[serde(default = "day")]
    pub token_max_age_ms: u64,
    /// How long keys stay valid if they cannot be fetched again.
    #[serde(default = "day")]
    pub jwks_max_age_ms: u64,
    /// Timeout of one request to the provider.
    #[serde(default = "five_seconds")]
    pub timeout_ms: u64,
    /// The dashboard as a client of the provider. Without it browsers sign in only with operators' tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientConfig>,
    /// The permissions of each value of the claim.
    pub roles: BTreeMap<String, OidcGrant>,
}

/// `[oidc.client]`: sign-in to the dashboard by the authorization code flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// The `aud` of ID tokens.
    pub client_id: String,
    /// A file with the client's secret, if needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// The coordinator's URL for browsers. The provider must list it, followed by `/sign-in/callback`, as a redirect URI.
    pub public_url: String,
    /// Requested scopes. Must include `openid`.
    #[serde(default = "openid")]
    pub scopes: Vec<String>,
    /// The provider's name on the button. Default: the host of `issuer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The permissions of a value of the claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcGrant {
    pub role: Role,
    /// The tasks in scope, by id or name. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<String>>,
}

fn roles() -> String {
    "roles".to_owned()
}

fn openid() -> Vec<String> {
    vec!["openid".to_owned()]
}

fn every_algorithm() -> Vec<SigningAlgorithm> {
    SigningAlgorithm::ALL.to_vec()
}

fn minute() -> u64 {
    60_000
}

fn day() -> u64 {
    24 * 3600 * 1000
}

fn five_seconds() -> u64 {
    5_000
}

/// Whether the URL is protected against tampering: HTTPS, or a loopback address. Rejects URLs with a password, since it could be logged.
pub(crate) fn is_safe(url: &Url) -> bool {
    let is_here = || {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let has_password = !url.username().is_empty() || url.password().is_some();
    match url.scheme() {
        _ if has_password => false,
        "https" => true,
        "http" => is_here(),
        _ => false,
    }
}

impl ClientConfig {
    fn check(&self, problems: &mut Vec<String>) {
        require(problems, !self.client_id.is_empty(), "oidc.client.client_id: must not be empty");
        // The cookie is valid for the whole host, with the dashboard at its root.
        let is_origin = Url::parse(&self.public_url)
            .is_ok_and(|url| is_safe(&url) && url.path() == "/" && url.query().is_none() && url.fragment().is_none());
        require(problems, is_origin, "oidc.client.public_url: must be https://HOST[:PORT], without a path");
        let is_scope = |scope: &String| {
            !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'))
        };
        require(
            problems,
            self.scopes.iter().all(is_scope) && self.scopes.iter().any(|scope| scope == "openid"),
            "oidc.client.scopes: must be words without spaces, and \"openid\" among them",
        );
        require(
            problems,
            self.name.as_ref().is_none_or(|name| (1..=64).contains(&name.len()) && !name.chars().any(char::is_control)),
            "oidc.client.name: must have 1 to 64 bytes, on one line",
        );
    }
}

impl OidcConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let is_fit = |url: &str| Url::parse(url).is_ok_and(|url| is_safe(&url));
        require(problems, is_fit(&self.issuer), "oidc.issuer: must be an https:// URL (http:// on this machine alone)");
        require(
            problems,
            self.jwks_url.as_deref().is_none_or(is_fit),
            "oidc.jwks_url: must be an https:// URL (http:// on this machine alone)",
        );
        require(problems, !self.audience.is_empty(), "oidc.audience: must not be empty");
        require(problems, !self.claim.is_empty(), "oidc.claim: must not be empty");
        require(problems, !self.algorithms.is_empty(), "oidc.algorithms: must name at least one");
        require(problems, !self.roles.is_empty(), "[oidc.roles]: without a value that allows something nobody gets in");
        if let Some(client) = &self.client {
            client.check(problems);
        }
        for (value, OidcGrant { role, tasks }) in &self.roles {
            let Some(tasks) = tasks else { continue };
            require(
                problems,
                (1..=64).contains(&tasks.len()),
                format!("oidc.roles.{value:?}.tasks: must name 1 to 64 tasks; without it, it is for everything"),
            );
            require(
                problems,
                *role < Role::Admin,
                format!("oidc.roles.{value:?}.tasks: the role admin is for everything"),
            );
        }
        require(problems, self.leeway_ms <= 600_000, "oidc.leeway_ms: must be at most 600000 (ten minutes)");
        for (name, ms) in [("token_max_age_ms", self.token_max_age_ms), ("jwks_max_age_ms", self.jwks_max_age_ms)] {
            require(
                problems,
                (1_000..=31 * day()).contains(&ms),
                format!("oidc.{name}: must be between 1000 and 2678400000 (31 days)"),
            );
        }
        require(
            problems,
            (1..=20_000).contains(&self.timeout_ms),
            "oidc.timeout_ms: must be between 1 and 20000, or requests would end first",
        );
    }

    pub(crate) fn leeway(&self) -> Duration {
        Duration::from_millis(self.leeway_ms)
    }

    pub(crate) fn token_max_age(&self) -> Duration {
        Duration::from_millis(self.token_max_age_ms)
    }

    pub(crate) fn jwks_max_age(&self) -> Duration {
        Duration::from_millis(self.jwks_max_age_ms)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_changed_on_the_way_is_not_fetched() {
        let judged = |url: &str| Url::parse(url).is_ok_and(|url| is_safe(&url));
        for safe in ["https://id.example/a", "http://localhost:1/", "http://127.0.0.2/", "http://[::1]:8/"] {
            assert!(judged(safe), "{safe}");
        }
        for unsafe_url in [
            "http://id.example/",
            "http://localhost.example/",
            "http://10.0.0.1/",
            "https://u:p@id.example",
            "file:///etc/passwd",
            "id",
        ] {
            assert!(!judged(unsafe_url), "{unsafe_url}");
        }
    }

    #[test]
    fn everything_that_cannot_work_is_told() {
        let config: OidcConfig = toml::from_str(
            "issuer = \"http://id.example\"\naudience = \"\"\nalgorithms = []\nleeway_ms = 600001\ntoken_max_age_ms = 0\n\
             timeout_ms = 0\njwks_url = \"ftp://x\"\n\
             roles = { all = { role = \"admin\", tasks = [\"a\"] }, none = { role = \"viewer\", tasks = [] } }",
        )
        .unwrap();
        let mut problems = Vec::new();
        config.check(&mut problems);
        for part in [
            "issuer",
            "jwks_url",
            "audience",
            "algorithms",
            "leeway_ms",
            "token_max_age_ms",
            "timeout_ms",
            "all",
            "none",
        ] {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part} missing in {problems:?}");
        }
        assert_eq!(problems.len(), 9, "{problems:?}");
        let mut client: ClientConfig = toml::from_str("client_id = \"\"\npublic_url = \"https://a\"\n").unwrap();
        client.scopes = vec!["profile".to_owned()];
        for wrong in [
            "http://fl.example",
            "https://fl.example/a",
            "https://fl.example/?a",
            "https://fl.example/#a",
            "fl.example",
        ] {
            client.public_url = wrong.to_owned();
            client.name = Some(String::new());
            let mut problems = Vec::new();
            client.check(&mut problems);
            assert_eq!(problems.len(), 4, "{problems:?}");
        }
        let good =
            "client_id = \"a\"\npublic_url = \"https://fl.example:8443/\"\nscopes = [\"openid\", \"https://a/b\"]\n";
        let mut problems = Vec::new();
        toml::from_str::<ClientConfig>(good).unwrap().check(&mut problems);
        assert_eq!(problems, Vec::<String>::new());
        for (text, part) in
            [("algorithms = [\"HS256\"]", "HS256"), ("algorithms = [\"none\"]", "none"), ("rolls = 1", "rolls")]
        {
            let text = format!("issuer = \"https://id\"\naudience = \"a\"\nroles = {{}}\n{text}");
            assert!(toml::from_str::<OidcConfig>(&text).unwrap_err().to_string().contains(part));
        }
    }
}

//! Reads and validates the claims of a token.

use federation::time::Timestamp;
use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::unambiguous::is_unambiguous;
use crate::config::OidcConfig;

/// Maximum length of `sub`, OpenID Connect Core §2.
const SUBJECT_MAX_BYTES: usize = 255;

/// The required audience of a token.
#[derive(Clone, Copy)]
pub(super) enum For<'f> {
    /// This service, for any bearer.
    Service,
    /// This client of the provider, in response to the request with this nonce (OpenID Connect Core §3.1.3.7).
    Client { id: &'f str, nonce: &'f str },
}

/// The relevant claims of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    /// Values of the configured claim.
    pub(super) values: Vec<String>,
    /// The token's expiry.
    pub(super) until: Timestamp,
}

impl Claims {
    /// Reads the claims of a token with a verified signature, and validates them at `now`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn judge(payload: &[u8], config: &OidcConfig, of: For<'_>, now: Timestamp) -> Result<Self, Refusal> {
        let claims: Map<String, Value> =
            serde_json::from_slice(payload).map_err(|_| Refusal::Malformed("its claims are no object of JSON"))?;
        if !is_unambiguous(payload) {
            return Err(Refusal::Malformed("a member of its claims occurs twice"));
        }
        if claims.get("iss").and_then(Value::as_str) != Some(&config.issuer) {
            return Err(Refusal::Issuer);
        }
        is_for(&claims, config, of)?;
        let leeway = config.leeway();
        let issued = time(&claims, "iat")?.ok_or(Refusal::Claim("iat"))?;
        let expires = time(&claims, "exp")?.ok_or(Refusal::Claim("exp"))?;
        let begins = time(&claims, "nbf")?.map_or(issued, |begins| begins.max(issued));
        if begins > now.plus(leeway) {
            return Err(Refusal::NotYet(begins));
        }
        if expires.plus(leeway) <= now {
            return Err(Refusal::Expired(expires));
        }
        let oldest = issued.plus(config.token_max_age()).plus(leeway);
        if oldest <= now {
            return Err(Refusal::TooOld(issued));
        }
        let subject = claims.get("sub").and_then(Value::as_str);
        let subject = subject.filter(|subject| (1..=SUBJECT_MAX_BYTES).contains(&subject.len()));
        let subject = subject.ok_or(Refusal::Claim("sub"))?.to_owned();
        let values = decisive(&claims, &config.claim);
        Ok(Self { subject, values, until: expires.plus(leeway).min(oldest) })
    }
}

/// Checks the audience of the token.
fn is_for(claims: &Map<String, Value>, config: &OidcConfig, of: For<'_>) -> Result<(), Refusal> {
    let is_meant = |wanted: &str| texts(claims.get("aud")).any(|audience| audience == wanted);
    match of {
        For::Service => is_meant(&config.audience).then_some(()).ok_or(Refusal::Audience),
        For::Client { id, nonce } => {
            let party = claims.get("azp").map(Value::as_str);
            let is_ours = match party {
                Some(party) => party == Some(id),
                // With several audiences, `azp` must name the authorized party.
                None => texts(claims.get("aud")).nth(1).is_none(),
            };
            if !is_meant(id) || !is_ours {
                return Err(Refusal::Audience);
            }
            let is_answer = claims.get("nonce").and_then(Value::as_str) == Some(nonce);
            is_answer.then_some(()).ok_or(Refusal::Nonce)
        }
    }
}

/// The values of the configured claim.
fn decisive(claims: &Map<String, Value>, claim: &str) -> Vec<String> {
    let found = match claim.strip_prefix('/').and_then(|path| path.split_once('/')) {
        // The first step of the pointer names a claim, the rest leads into it.
        Some((first, rest)) => {
            let first = first.replace("~1", "/").replace("~0", "~");
            claims.get(&first).and_then(|inside| inside.pointer(&format!("/{rest}")))
        }
        None => claims.get(claim.strip_prefix('/').unwrap_or(claim)),
    };
    texts(found).map(str::to_owned).collect()
}

/// A text, or the texts in a list.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let (one, list) = match value {
        Some(Value::String(text)) => (Some(text.as_str()), [].as_slice()),
        Some(Value::Array(list)) => (None, list.as_slice()),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => (None, [].as_slice()),
    };
    one.into_iter().chain(list.iter().filter_map(Value::as_str))
}

/// Seconds since 1970, without fractions.
fn time(claims: &Map<String, Value>, name: &'static str) -> Result<Option<Timestamp>, Refusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds: Option<i64> = match value {
        Value::Number(number) => {
            let text = number.to_string();
            text.split('.').next().and_then(|whole| whole.parse().ok())
        }
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let ms = seconds.filter(|seconds| *seconds >= 0).and_then(|seconds| seconds.checked_mul(1000));
    ms.map(|ms| Some(Timestamp(ms))).ok_or(Refusal::Claim(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_750_000_000_000);
    const NOW_S: i64 = 1_750_000_000;

    fn config(claim: &str) -> OidcConfig {
        let text = format!(
            "issuer = \"https://id.example\"\naudience = \"tributary\"\nclaim = \"{claim}\"\ntoken_max_age_ms = 3600000\n\
             roles = {{ a = {{ role = \"viewer\" }} }}"
        );
        toml::from_str(&text).unwrap()
    }

    fn judged(change: impl FnOnce(&mut Value)) -> Result<Claims, Refusal> {
        let mut claims = json!({
            "iss": "https://id.example", "aud": "tributary", "sub": "ann", "roles": ["a", 1, "b"],
            "iat": NOW_S, "exp": NOW_S + 300,
        });
        change(&mut claims);
        Claims::judge(claims.to_string().as_bytes(), &config("roles"), For::Service, NOW)
    }

    #[test]
    fn a_token_for_a_client_answers_its_request() {
        let judged = |change: &dyn Fn(&mut Value)| {
            let mut claims = json!({
                "iss": "https://id.example", "aud": "dashboard", "sub": "ann", "nonce": "n", "iat": NOW_S, "exp": NOW_S + 300,
            });
            change(&mut claims);
            let of = For::Client { id: "dashboard", nonce: "n" };
            Claims::judge(claims.to_string().as_bytes(), &config("roles"), of, NOW).map(drop)
        };
        let both = json!(["tributary", "dashboard"]);
        assert_eq!(judged(&|_| {}), Ok(()));
        assert_eq!(judged(&|claims| claims["azp"] = json!("dashboard")), Ok(()));
        assert_eq!(
            judged(&|claims| (claims["aud"], claims["azp"]) = (both.clone(), json!("dashboard"))),
            Ok(()),
            "it says for which"
        );
        for (name, value) in
            [("aud", json!("tributary")), ("aud", both.clone()), ("azp", json!("other")), ("azp", json!(7))]
        {
            assert_eq!(judged(&|claims| claims[name] = value.clone()), Err(Refusal::Audience), "{name} {value}");
        }
        for value in [json!("m"), json!(null), json!(["n"]), json!("")] {
            assert_eq!(judged(&|claims| claims["nonce"] = value.clone()), Err(Refusal::Nonce), "{value}");
        }
    }

    #[test]
    fn what_counts_is_told_until_when() {
        let until = |seconds: i64| Timestamp((NOW_S + seconds) * 1000);
        let plain = judged(|_| {}).unwrap();
        let values = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(plain, Claims { subject: "ann".to_owned(), values, until: until(360) });
        // The configuration limits a validity of a year to an hour.
        assert_eq!(judged(|claims| claims["exp"] = json!(NOW_S + 31_536_000)).unwrap().until, until(3660));
        assert_eq!(judged(|claims| claims["aud"] = json!(["x", "tributary"])).unwrap(), plain);
        assert_eq!(judged(|claims| claims["exp"] = json!(1_750_000_300.75)).unwrap(), plain);
        assert_eq!(judged(|claims| claims["roles"] = json!("b")).unwrap().values, ["b"]);
        for none in [json!(null), json!({ "a": true }), json!(7), json!([])] {
            assert!(judged(|claims| claims["roles"] = none).unwrap().values.is_empty());
        }
    }

    #[test]
    fn clocks_may_differ_by_the_leeway_and_no_more() {
        let is_fine = |name: &str, seconds: i64| judged(|claims| claims[name] = json!(NOW_S + seconds)).is_ok();
        assert!(is_fine("exp", -59) && !is_fine("exp", -60));
        assert!(is_fine("nbf", 60) && !is_fine("nbf", 61));
        assert!(is_fine("iat", 60) && !is_fine("iat", 61));
        assert!(is_fine("iat", -3659) && !is_fine("iat", -3660));
    }

    #[test]
    fn what_does_not_count_is_told_by_its_name() {
        let refused = |name: &str, value: Value| judged(|claims| claims[name] = value).unwrap_err();
        assert_eq!(refused("iss", json!("https://id.example/")), Refusal::Issuer);
        assert_eq!(refused("aud", json!("tributary2")), Refusal::Audience);
        assert_eq!(refused("aud", json!({ "tributary": 1 })), Refusal::Audience);
        for wrong in [json!("soon"), json!(null), json!(-1), json!(1e300), json!(i64::MAX), json!([NOW_S])] {
            for name in ["exp", "iat", "nbf"] {
                let error = refused(name, wrong.clone());
                assert!(matches!(error, Refusal::Claim(claim) if claim == name), "{name} {wrong}: {error}");
            }
        }
        for wrong in [json!(""), json!(7), json!("x".repeat(256))] {
            assert_eq!(refused("sub", wrong), Refusal::Claim("sub"));
        }
        for name in ["exp", "iat", "sub"] {
            let gone = judged(|claims| drop(claims.as_object_mut().unwrap().remove(name))).unwrap_err();
            assert_eq!(gone, Refusal::Claim(name));
        }
        assert!(matches!(Claims::judge(b"[]", &config("roles"), For::Service, NOW), Err(Refusal::Malformed(_))));
    }

    #[test]
    fn claims_with_a_repeated_member_are_refused() {
        let claims = |more: &str| {
            let text = format!(
                r#"{{"iss": "https://id.example", "aud": "tributary", "sub": "ann", "iat": {NOW_S}, "exp": {}{more}}}"#,
                NOW_S + 300
            );
            Claims::judge(text.as_bytes(), &config("roles"), For::Service, NOW)
        };
        assert!(claims("").is_ok());
        for more in [
            r#", "aud": "tributary""#,
            r#", "\u0061ud": "tributary""#,
            r#", "sub": "eve""#,
            r#", "roles": ["a"], "roles": ["b"]"#,
            r#", "realm": {"roles": ["a"], "roles": []}"#,
        ] {
            let refused = claims(more).unwrap_err();
            assert!(matches!(refused, Refusal::Malformed(why) if why.contains("twice")), "{more}: {refused}");
        }
    }

    #[test]
    fn the_claim_that_decides_may_lie_deeper() {
        let claims = json!({ "a": { "b/c": ["x"] }, "https://id/roles": "y", "d~/e": { "f": "z" } });
        let claims = claims.as_object().unwrap();
        for (claim, value) in [("/a/b~1c", "x"), ("https://id/roles", "y"), ("/d~0~1e/f", "z")] {
            assert_eq!(decisive(claims, claim), [value], "{claim}");
        }
        assert!(decisive(claims, "/a/b/c").is_empty() && decisive(claims, "/a").is_empty());
    }
}

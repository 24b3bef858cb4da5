//! Shapes responses to operators: `?fields=` selects fields, and `?times=rfc3339` writes times as text.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{Uri, header};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::compress::apart;
use super::problem::{Error, Result};
use crate::http::openapi::{FIELDS, RFC3339, Shape, Shapes, TIMES};

#[derive(Default)]
struct Wanted {
    fields: Option<Vec<String>>,
    is_rfc3339: bool,
}

/// Shapes the responses of operations with a known shape.
pub(in crate::http) async fn shape(State(shapes): State<Arc<Shapes>>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Some(shape) = shapes.get(&(request.method().as_str().to_lowercase(), path.to_owned())) else {
        return next.run(request).await;
    };
    let wanted = match take(shape, request.uri_mut()) {
        Ok(wanted) => wanted,
        Err(error) => return error.into_response(),
    };
    let response = next.run(request).await;
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
    match wanted {
        Some(wanted) if is_json => {
            reshape(shape.is_page, wanted, response).await.unwrap_or_else(|error| error.into_response())
        }
        Some(_) | None => response,
    }
}

/// Removes the shape parameters from the query before handlers read it.
fn take(shape: &Shape, uri: &mut Uri) -> Result<Option<Wanted>> {
    let Some(query) = uri.query().filter(|query| query.contains(FIELDS) || query.contains(TIMES)) else {
        return Ok(None);
    };
    // The handler reports an unreadable query.
    let Ok(pairs) = serde_html_form::from_str::<Vec<(String, String)>>(query) else { return Ok(None) };
    let (mine, rest): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|(name, _)| name == TIMES || (name == FIELDS && !shape.fields.is_empty()));
    let mut wanted = Wanted::default();
    for (name, value) in &mine {
        if name == TIMES && value == RFC3339 {
            wanted.is_rfc3339 = true;
        } else if name == TIMES {
            return Err(Error::InvalidValue(format!("times: {RFC3339}, or nothing for milliseconds since 1970")));
        } else if wanted.fields.replace(named(shape, value)?).is_some() {
            return Err(Error::Malformed("the query: fields comes twice; separate names by commas".to_owned()));
        }
    }
    if mine.is_empty() {
        return Ok(None);
    }
    let rest = serde_html_form::to_string(rest).map_err(Error::fault)?;
    let path = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(path.parse().map_err(Error::fault)?);
    *uri = Uri::from_parts(parts).map_err(Error::fault)?;
    Ok(Some(wanted))
}

fn named(shape: &Shape, names: &str) -> Result<Vec<String>> {
    let known = |name: &str| {
        let found = shape.fields.iter().find(|known| *known == name).cloned();
        found.ok_or_else(|| {
            Error::InvalidValue(format!("fields: there is none called {name:?}, only {}", shape.fields.join(", ")))
        })
    };
    names.split(',').map(known).collect()
}

async fn reshape(is_page: bool, wanted: Wanted, response: Response) -> Result<Response> {
    let (mut parts, body) = response.into_parts();
    let whole = body.collect().await.map_err(Error::fault)?.to_bytes();
    let shaped = apart(whole.len(), move || reshaped(is_page, &wanted, &whole)).await.map_err(Error::fault)?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, shaped.map_err(Error::fault)?.into()))
}

fn reshaped(is_page: bool, wanted: &Wanted, whole: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(whole)?;
    if let Some(fields) = &wanted.fields {
        let views = match &mut value {
            Value::Object(page) if is_page => {
                page.get_mut("items").and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
            }
            view => std::slice::from_mut(view),
        };
        for view in views.iter_mut().filter_map(Value::as_object_mut) {
            view.retain(|name, _| fields.contains(name));
        }
    }
    if wanted.is_rfc3339 {
        write_times(&mut value);
    }
    serde_json::to_vec(&value)
}

/// Writes every number in a field `at` or `…_at` as text; times outside the calendar stay numbers.
fn write_times(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_times),
        Value::Object(fields) => write_times_of(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn write_times_of(fields: &mut Map<String, Value>) {
    for (name, value) in fields {
        match value.as_i64().filter(|_| name == "at" || name.ends_with("_at")).and_then(text) {
            Some(text) => *value = text.into(),
            None => write_times(value),
        }
    }
}

fn text(millis: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok()?.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape() -> Shape {
        Shape { is_page: true, fields: vec!["id".to_owned(), "name".to_owned()] }
    }

    #[test]
    fn what_is_asked_of_the_shape_is_kept_from_handlers() {
        let taken = |uri: &str| {
            let mut uri: Uri = uri.parse().unwrap();
            take(&shape(), &mut uri).map(|wanted| (wanted, uri.to_string()))
        };
        let (wanted, uri) = taken("/v1/tasks?limit=2&fields=id%2Cname&label=a%3Db&label=c&times=rfc3339").unwrap();
        let wanted = wanted.unwrap();
        assert_eq!((wanted.fields.unwrap().join(" ").as_str(), wanted.is_rfc3339), ("id name", true));
        assert_eq!(uri, "/v1/tasks?limit=2&label=a%3Db&label=c");
        assert_eq!(taken("/v1/tasks?fields=id").unwrap().1, "/v1/tasks");
        let (wanted, uri) = taken("/v1/tasks?label=fields&limit=").unwrap();
        assert!(wanted.is_none() && uri == "/v1/tasks?label=fields&limit=");
        for query in ["fields=secret", "fields=", "fields=id,,name", "fields=id&fields=name", "times=iso", "times="] {
            assert!(taken(&format!("/v1/tasks?{query}")).is_err(), "{query}");
        }
    }

    #[test]
    fn times_are_those_fields_that_are_called_so() {
        let mut value = json!({
            "at": 0, "opened_at": 1_750_000_000_500_i64, "ended_at": null, "format": 1, "late_at": i64::MAX,
            "history": [{ "at": -1 }], "pat": 5, "x_at": "text",
        });
        write_times(&mut value);
        let expected = json!({
            "at": "1970-01-01T00:00:00Z", "opened_at": "2025-06-15T15:06:40.5Z", "ended_at": null, "format": 1,
            "late_at": i64::MAX, "history": [{ "at": "1969-12-31T23:59:59.999Z" }], "pat": 5, "x_at": "text",
        });
        assert_eq!(value, expected);
    }
}

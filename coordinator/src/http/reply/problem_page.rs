//! A problem as a page, for browsers outside the dashboard.

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};
use wire::problem::Problem;

/// Allows only the dashboard's styles and icon.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page. Escapes all text of the problem.
pub(in crate::http) fn problem_page(problem: &Problem) -> Response {
    let instance = problem.instance.as_deref().map(|id| format!("<p class=\"note\">Request {}</p>", text(id)));
    let body = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Not signed in · Tributary</title>\n\
         <link rel=\"icon\" href=\"/assets/any/icon.svg\">\n<link rel=\"stylesheet\" href=\"/assets/any/dashboard.css\">\n\
         <main class=\"sign-in\"><div class=\"sign-in-box\">\n<h1>You are not signed in</h1>\n\
         <div class=\"alert alert-bad\" role=\"alert\"><p><b>{}</b></p><p>{}</p></div>\n{}\n\
         <p><a class=\"button button-primary\" href=\"/\">Back to the sign-in</a></p>\n</div></main>\n</html>\n",
        text(&problem.title),
        text(problem.detail.as_deref().unwrap_or("The coordinator's log says why.")),
        instance.unwrap_or_default(),
    );
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, headers, body).into_response()
}

/// Escapes text for HTML.
fn text(text: &str) -> String {
    text.chars().fold(String::new(), |mut made, letter| {
        match letter {
            '&' => made.push_str("&amp;"),
            '<' => made.push_str("&lt;"),
            '>' => made.push_str("&gt;"),
            '"' => made.push_str("&quot;"),
            '\'' => made.push_str("&#39;"),
            other => made.push(other),
        }
        made
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_problem_says_becomes_text() {
        assert_eq!(text("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
    }
}

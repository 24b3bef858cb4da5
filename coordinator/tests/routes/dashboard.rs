//! Pages are served with security headers, and only at their routes.

use axum::body::Body;
use http::Request;
use wire::problem::ProblemType;

use crate::support::{Reply, TestCoordinator, Who, config, key_and_csr};

async fn asked(t: &TestCoordinator, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    t.send(&Who::Nobody, request.body(Body::empty()).unwrap()).await
}

/// The URL of the page's main module.
fn main_of(page: &Reply) -> String {
    let text = String::from_utf8(page.body.clone()).unwrap();
    let named = text.split('"').find(|part| part.starts_with("assets/") && part.ends_with("/main.js"));
    format!("/{}", named.unwrap())
}

#[tokio::test]
async fn the_page_is_guarded_and_names_its_files() {
    let t = TestCoordinator::start().await;
    let page = asked(&t, "/", &[]).await;
    assert_eq!(
        (page.status.as_u16(), &page.headers["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["referrer-policy"], "no-referrer");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    assert_eq!(page.headers["cache-control"], "no-cache");

    let main = asked(&t, &main_of(&page), &[]).await;
    assert_eq!(main.headers["content-type"], "text/javascript; charset=utf-8");
    assert!(main.headers["cache-control"].to_str().unwrap().contains("immutable"));
    let elsewhere = asked(&t, "/assets/another-release/main.js", &[]).await;
    assert_eq!(
        (elsewhere.body == main.body, &elsewhere.headers["cache-control"]),
        (true, &"no-cache".parse().unwrap())
    );
    for path in ["/assets/x/none.js", "/assets/x/../index.html", "/assets/x/", "/index.html", "/dashboard"] {
        asked(&t, path, &[]).await.problem(ProblemType::NotFound);
    }
}

#[tokio::test]
async fn anybody_may_read_the_authority_of_the_server() {
    let t = TestCoordinator::start().await;
    let authority = asked(&t, "/ca.pem", &[]).await;
    assert_eq!((authority.status.as_u16(), &authority.headers["cache-control"]), (200, &"no-store".parse().unwrap()));
    let reply = t.enroll_with("a", &key_and_csr().1).await;
    let issuer = reply.certificate_pem.split_inclusive("-----END CERTIFICATE-----").nth(1).unwrap().trim().to_owned();
    assert_eq!(String::from_utf8(authority.body).unwrap().trim().replace('\r', ""), issuer.replace('\r', ""));
    let mut config = config();
    config.http.dashboard = false;
    asked(&TestCoordinator::with(&config).await, "/ca.pem", &[]).await.problem(ProblemType::NotFound);
}

#[tokio::test]
async fn files_are_compressed_for_whoever_can_read_that_and_not_sent_twice() {
    let t = TestCoordinator::start().await;
    let plain = asked(&t, "/", &[]).await;
    assert!(!plain.headers.contains_key("content-encoding"));
    let small = asked(&t, "/", &[("accept-encoding", "br, gzip;q=0.8")]).await;
    assert_eq!(small.headers["content-encoding"], "gzip");
    let mut opened = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&small.body[..]), &mut opened).unwrap();
    assert_eq!(opened, plain.body);
    let refused = asked(&t, "/", &[("accept-encoding", "gzip;q=0")]).await;
    assert_eq!(refused.body, plain.body);
    let etag = plain.headers["etag"].to_str().unwrap();
    let known = asked(&t, "/", &[("if-none-match", etag)]).await;
    assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));
    assert_eq!(asked(&t, "/", &[("if-none-match", "\"other\"")]).await.status, 200);
}

#[tokio::test]
async fn a_configuration_may_leave_it_out() {
    let mut config = config();
    config.http.dashboard = false;
    let t = TestCoordinator::with(&config).await;
    for path in ["/", "/assets/x/main.js"] {
        asked(&t, path, &[]).await.problem(ProblemType::NotFound);
    }
}

#[tokio::test]
async fn the_reference_is_guarded_and_loads_its_files() {
    let t = TestCoordinator::start().await;
    let page = asked(&t, "/docs/api", &[]).await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'; script-src 'self';") && policy.contains("connect-src 'self'"),
        "{policy}"
    );
    let text = String::from_utf8(page.body.clone()).unwrap();
    let named: Vec<_> = text.split('"').filter(|part| part.starts_with("api/")).collect();
    let files = ["swagger-ui.css", "reference.css", "theme.js", "swagger-ui-bundle.js", "main.js"];
    assert_eq!(named, files.map(|name| format!("api/{name}")), "{text}");
    for name in named {
        let plain = asked(&t, &format!("/docs/{name}"), &[]).await;
        let packed = asked(&t, &format!("/docs/{name}"), &[("accept-encoding", "gzip")]).await;
        assert_eq!(
            (plain.status.as_u16(), &packed.headers["content-encoding"]),
            (200, &"gzip".parse().unwrap()),
            "{name}"
        );
        assert!(packed.body.len() < plain.body.len() && packed.headers["etag"] == plain.headers["etag"], "{name}");
        let tag = plain.headers["etag"].to_str().unwrap();
        assert_eq!(asked(&t, &format!("/docs/{name}"), &[("if-none-match", tag)]).await.status, 304);
    }
    for path in ["/docs/api/none.js", "/docs/", "/docs/api/"] {
        asked(&t, path, &[]).await.problem(ProblemType::NotFound);
    }
    let mut config = config();
    config.http.dashboard = false;
    let t = TestCoordinator::with(&config).await;
    asked(&t, "/docs/api", &[]).await.problem(ProblemType::NotFound);
}

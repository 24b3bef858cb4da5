//! A silent trace collector does not delay rounds.

use std::net::TcpListener;

use federation::round::RoundState;
use wire::headers::TRACEPARENT;
use wire::{TraceContext, route};

use crate::support::config;
use crate::support::secure::World;

#[tokio::test]
async fn rounds_go_on_while_the_collector_is_silent() {
    // Connections arrive and are never read.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config();
    config.traces.endpoint = Some(format!("http://{}/v1/traces", silent.local_addr().unwrap()));
    config.traces.sample_ratio = 1.0;
    let mut world = World::with_config(4, config, |_| {}).await;
    for round in 1..=2 {
        assert_eq!(world.complete(round).await.state, RoundState::Completed);
    }
    // Shutdown waits for at most a few seconds.
    world.t.inner.stop().await;
}

#[tokio::test]
async fn who_is_followed_is_told_the_trace_and_others_are_not() {
    for (ratio, is_told) in [(1.0, true), (0.0, false)] {
        let mut config = config();
        config.traces.endpoint = Some("http://127.0.0.1:9/v1/traces".to_owned());
        config.traces.sample_ratio = ratio;
        let mut world = World::with_config(4, config, |_| {}).await;
        world.join(|_| true).await;
        world.assign(|_| true).await;
        let told: Vec<_> = world.members.iter().map(|member| member.place().traceparent.clone()).collect();
        assert!(told.iter().all(|trace| trace.is_some() == is_told), "{told:?}");
        let contexts = told.iter().flatten().map(|trace| trace.parse::<TraceContext>().unwrap().trace);
        let distinct: std::collections::HashSet<_> = contexts.collect();
        assert_eq!(distinct.len(), if is_told { 4 } else { 0 }, "each has a trace of its own");
        // A forged header changes nothing for its sender.
        let mut request = http::Request::get(route::HEALTHZ).body(axum::body::Body::empty()).unwrap();
        let invented = TraceContext { trace: [1; 16], span: [2; 8] }.to_string();
        request.headers_mut().insert(TRACEPARENT, invented.parse().unwrap());
        assert_eq!(world.t.send(&crate::support::Who::Nobody, request).await.status, 200);
    }
}

//! A collector of traces: takes OTLP over HTTP, and stores the spans.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// Spans received so far.
#[derive(Default)]
struct Received {
    spans: Vec<Told>,
    bodies: Vec<u8>,
}

/// A span, and its sender.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The kind of process, and the process.
    pub(crate) service: String,
    pub(crate) instance: String,
    pub(crate) span: Span,
}

/// A collector that takes everything, until the test ends.
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        listener.set_nonblocking(true).unwrap();
        let received = Arc::<Mutex<Received>>::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&received));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { endpoint, received }
    }

    pub(crate) fn spans(&self) -> Vec<Told> {
        self.received.lock().unwrap().spans.clone()
    }

    /// All bytes that came.
    pub(crate) fn bodies(&self) -> Vec<u8> {
        self.received.lock().unwrap().bodies.clone()
    }
}

async fn take(State(received): State<Arc<Mutex<Received>>>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
    let mut received = received.lock().unwrap();
    received.bodies.extend_from_slice(&body);
    for of_process in request.resource_spans {
        let resource = of_process.resource.unwrap();
        let attribute = |key: &str| {
            let found = resource.attributes.iter().find(|attribute| attribute.key == key);
            match found.and_then(|attribute| attribute.value.clone()?.value) {
                Some(Value::StringValue(text)) => text,
                other => panic!("{key} is {other:?}"),
            }
        };
        let (service, instance) = (attribute("service.name"), attribute("service.instance.id"));
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            received.spans.push(Told { service: service.clone(), instance: instance.clone(), span });
        }
    }
}
